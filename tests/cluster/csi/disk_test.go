package main

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

func TestWantedSize(t *testing.T) {
	tests := map[string]struct {
		required, limit, want int64
		fails                 bool
	}{
		"nothing wanted gives the smallest":       {want: minSize},
		"whole blocks stay":                       {required: 64 << 20, want: 64 << 20},
		"a part of a block counts whole":          {required: 64<<20 + 1, want: 64<<20 + block},
		"a limit below the smallest is refused":   {limit: 1 << 20, fails: true},
		"a limit between two blocks is refused":   {required: 64<<20 + 1, limit: 64<<20 + 2, fails: true},
		"a limit with room for the size is heard": {required: 64 << 20, limit: 65 << 20, want: 64 << 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := wantedSize(&csi.CapacityRange{RequiredBytes: tt.required, LimitBytes: tt.limit})
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("got %d, %v, want %d", got, err, tt.want)
			}
		})
	}
}

func TestImageRefusesNamesThatLeaveTheDisk(t *testing.T) {
	d := driver{disk: "/disk"}
	for name, want := range map[string]string{"pvc-1": "/disk/pvc-1.img", "": "", "../x": "", "a/b": "", ".hidden": ""} {
		if got, err := d.image(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
}
