package query

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll-operator/bpf/event"
)

// encoded is a record as the kernel's side writes it, in a slot of the ring that may be larger than its text.
func encoded(t testing.TB, r kernelRecord, text string, room int) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.NativeEndian, r)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(b, text...), make([]byte, room)...)
}

func TestDecode(t *testing.T) {
	key := kernelKey{Cgroup: 1, Print: 2, Who: 3, Nth: 4, Code: 5*36*36*36*36 + 7*36*36*36 + 36 + 4}
	want := event.Key{Cgroup: 1, Print: 2, Who: 3, Nth: 4, State: event.State(key.Code)}
	if got := want.State.String(); got != "57014" {
		t.Fatalf("the state is %s", got)
	}
	for sentence, row := range map[string]struct {
		raw  []byte
		want event.Event
		err  string
	}{
		"a text": {
			raw:  encoded(t, kernelRecord{Kind: 1, Pid: 9, Key: key, AtNs: 10, TextSize: 8, TextWhole: 8}, "SELECT 1", 440),
			want: event.Event{Kind: event.Text, PID: 9, Key: want, At: 10, Text: "SELECT 1", Whole: 8},
		},
		"a text that was cut": {
			raw:  encoded(t, kernelRecord{Kind: 1, TextSize: 3, TextWhole: 5000}, "SEL", 0),
			want: event.Event{Kind: event.Text, Text: "SEL", Whole: 5000},
		},
		"a failed statement": {
			raw: encoded(t, kernelRecord{
				Kind: 3, Pid: 9, Key: key, AtNs: 10, LatencyNs: 6, QueueNs: 1, ServiceNs: 2, TransferNs: 3, Rows: 2, BytesIn: 3, BytesOut: 4,
			}, "", 0),
			want: event.Event{Kind: event.Failed, PID: 9, Key: want, At: 10, Latency: 6, Queue: 1, Service: 2, Transfer: 3, Rows: 2, BytesIn: 3, BytesOut: 4},
		},
		"a client by IPv4": {
			raw:  encoded(t, kernelRecord{Kind: 2, Client: [16]uint8{10: 0xff, 11: 0xff, 12: 10, 15: 7}, ClientPort: 40000, Family: unix.AF_INET}, "", 0),
			want: event.Event{Kind: event.Slow, Client: netip.MustParseAddrPort("10.0.0.7:40000")},
		},
		"a client by IPv6": {
			raw:  encoded(t, kernelRecord{Kind: 2, Client: [16]uint8{0: 0xfd, 15: 7}, ClientPort: 40000, Family: unix.AF_INET6}, "", 0),
			want: event.Event{Kind: event.Slow, Client: netip.MustParseAddrPort("[fd00::7]:40000")},
		},
		"a client by a socket of the file system": {
			raw:  encoded(t, kernelRecord{Kind: 2, Family: unix.AF_UNIX}, "", 0),
			want: event.Event{Kind: event.Slow, Local: true},
		},
		"a text of Parse, behind which are the types of its parameters": {
			raw:  encoded(t, kernelRecord{Kind: 2, TextSize: 15, TextWhole: 15}, "SELECT 1\x00\x00\x01\x00\x00\x00\x17", 440),
			want: event.Event{Kind: event.Slow, Text: "SELECT 1", Whole: 8},
		},
		"a text longer than the record": {
			raw: encoded(t, kernelRecord{Kind: 1, TextSize: 9, TextWhole: 9}, "SELECT 1", 0),
			err: "decode a record: a text of 9 bytes, of 9, is said to be in 8",
		},
		"a text longer than its whole": {
			raw: encoded(t, kernelRecord{Kind: 1, TextSize: 8, TextWhole: 7}, "SELECT 1", 0),
			err: "decode a record: a text of 8 bytes, of 7, is said to be in 8",
		},
		"a kind of another version": {
			raw: encoded(t, kernelRecord{Kind: 4}, "", 0),
			err: "decode a record: kind 4 is not known: the programs in the kernel are of another version",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := decode(row.raw)
			if message(err) != row.err {
				t.Fatalf("%v, want %q", err, row.err)
			}
			if diff := cmp.Diff(row.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestARecordThatIsCutIsRefusedAtEveryOffset(t *testing.T) {
	whole := encoded(t, kernelRecord{Kind: 1, TextSize: 8, TextWhole: 8}, "SELECT 1", 0)
	for n := range whole {
		if e, err := decode(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for %+v", n, len(whole), e)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, kernelRecord{Kind: 1, TextSize: 8, TextWhole: 8}, "SELECT 1", 440))
	f.Add(encoded(f, kernelRecord{Kind: 2, LatencyNs: 1}, "", 0))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := decode(raw)
		if err == nil && (len(e.Text) > len(raw) || len(e.Text) > e.Whole || e.Kind.String() == "") {
			t.Errorf("%x was taken for %+v", raw, e)
		}
	})
}
