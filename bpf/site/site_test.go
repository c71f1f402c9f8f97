package site

import "testing"

func TestASiteIsWhereTheKernelNeedNotStep(t *testing.T) {
	for sentence, row := range map[string]struct {
		choose func([]byte) (int, error)
		code   []byte
		want   int
		err    string
	}{
		"a push":                              {choose: chooseAMD64, code: []byte{0x55, 0x48, 0x89, 0xe5}},
		"a push of a high register":           {choose: chooseAMD64, code: []byte{0x41, 0x57}},
		"a no-op":                             {choose: chooseAMD64, code: []byte{0x90}},
		"a no-op of five bytes":               {choose: chooseAMD64, code: []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}},
		"a relative call":                     {choose: chooseAMD64, code: []byte{0xe8, 1, 0, 0, 0}},
		"a push after a landing pad":          {choose: chooseAMD64, code: []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, want: 4},
		"a push after a copy":                 {choose: chooseAMD64, code: []byte{0x49, 0x89, 0xf6, 0x41, 0x55}, want: 3},
		"a copy over an argument":             {choose: chooseAMD64, code: []byte{0x48, 0x89, 0xfe, 0x55}, err: `its instruction "MOV RSI, RDI" at +0 can only be probed by single steps`},
		"room on the stack":                   {choose: chooseAMD64, code: []byte{0x48, 0x83, 0xec, 0x38}, err: `its instruction "SUB RSP, 0x38" at +0 can only be probed by single steps`},
		"a load":                              {choose: chooseAMD64, code: []byte{0x48, 0x8b, 0x05, 0, 0, 0, 0}, err: `its instruction "MOV RAX, [RIP]" at +0 can only be probed by single steps`},
		"an indirect call":                    {choose: chooseAMD64, code: []byte{0xff, 0xd0}, err: `its instruction "CALL RAX" at +0 can only be probed by single steps`},
		"landing pads alone":                  {choose: chooseAMD64, code: []byte{0xf3, 0x0f, 0x1e, 0xfa}, err: "no instruction of its first 4 bytes can be probed"},
		"AArch64: a frame":                    {choose: chooseARM64, code: []byte{0xfd, 0x7b, 0xbe, 0xa9}},
		"AArch64: a signed return address":    {choose: chooseARM64, code: []byte{0x3f, 0x23, 0x03, 0xd5}},
		"AArch64: room on the stack":          {choose: chooseARM64, code: []byte{0xff, 0x43, 0x00, 0xd1}},
		"AArch64: a load":                     {choose: chooseARM64, code: []byte{0x00, 0x00, 0x40, 0xf9}, err: "its first instruction f9400000 is not one that is known to be probed cheaply"},
		"AArch64: less than one instruction":  {choose: chooseARM64, code: []byte{0x00}, err: "it is too short"},
		"code that is cut in an instruction":  {choose: chooseAMD64, code: []byte{0x48}, err: `its instruction "REX.W Op(0)" at +0 can only be probed by single steps`},
		"a push after more than is looked at": {choose: chooseAMD64, code: nil, err: "no instruction of its first 0 bytes can be probed"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := row.choose(row.code)
			if message(err) != row.err || got != row.want {
				t.Errorf("chose +%d, %q; want +%d, %q", got, message(err), row.want, row.err)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestTheFirstCallOfAFunctionIsFound(t *testing.T) {
	for sentence, row := range map[string]struct {
		callee func([]byte) (int64, bool)
		code   []byte
		want   int64
		ok     bool
	}{
		"behind what OpenSSL begins with": {
			callee: calleeAMD64, want: 0x12 + 0x100, ok: true,
			code: []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0x85, 0xd2, 0x78, 0x10, 0x90, 0xe8, 0x00, 0x01, 0, 0},
		},
		"to what lies before":               {callee: calleeAMD64, code: []byte{0xe8, 0xfb, 0xff, 0xff, 0xff}, want: 0, ok: true},
		"an indirect call is none":          {callee: calleeAMD64, code: []byte{0xff, 0xd0, 0xe8, 0, 0, 0, 0}},
		"a function that ends before":       {callee: calleeAMD64, code: []byte{0x31, 0xc0, 0xc3, 0xe8, 0, 0, 0, 0}},
		"code that is cut":                  {callee: calleeAMD64, code: []byte{0x48}},
		"AArch64: bl":                       {callee: calleeARM64, code: []byte{0x3f, 0x23, 0x03, 0xd5, 0x02, 0x00, 0x00, 0x94}, want: 4 + 8, ok: true},
		"AArch64: bl to what lies before":   {callee: calleeARM64, code: []byte{0xff, 0xff, 0xff, 0x97}, want: -4, ok: true},
		"AArch64: it ends before":           {callee: calleeARM64, code: []byte{0xc0, 0x03, 0x5f, 0xd6, 0x02, 0x00, 0x00, 0x94}},
		"AArch64: less than an instruction": {callee: calleeARM64, code: []byte{0x94}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, ok := row.callee(row.code)
			if ok != row.ok || ok && got != row.want {
				t.Errorf("%d, %v; want %d, %v", got, ok, row.want, row.ok)
			}
		})
	}
}
