package faults

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func TestLoss(t *testing.T) {
	bytes := func(n int64) *int64 { return &n }
	none := v1.HandOver{Epoch: 3, LostBytes: bytes(0), Loss: "nothing: the old leader handed over all that it had"}
	some := v1.HandOver{Epoch: 4, LostBytes: bytes(1000), Loss: "5 commits in 1000 bytes of log that only orders-1 had"}
	for sentence, row := range map[string]struct {
		told         []v1.HandOver
		lost, undone int
		want         []string
	}{
		"nothing was lost, and nothing is said":                 {[]v1.HandOver{none}, 0, 2, nil},
		"what was lost is said":                                 {[]v1.HandOver{none, some}, 5, 0, nil},
		"more than was acknowledged may be lost":                {[]v1.HandOver{some}, 2, 1, nil},
		"of writes in doubt alone":                              {[]v1.HandOver{some}, 0, 1, nil},
		"nobody changed hands":                                  {nil, 0, 0, nil},
		"nobody changed hands by its word, and writes are lost": {nil, 1, 0, []string{"status says that 0 bytes were lost, and 1 acknowledged writes are: too few bytes for them"}},
		"status says nothing of a loss":                         {[]v1.HandOver{none}, 1, 0, []string{"status says that 0 bytes were lost, and 1 acknowledged writes are: too few bytes for them"}},
		"status says too little":                                {[]v1.HandOver{some}, 11, 0, []string{"status says that 1000 bytes were lost, and 11 acknowledged writes are: too few bytes for them"}},
		"status says too much":                                  {[]v1.HandOver{some}, 0, 0, []string{"status says that 1000 bytes were lost, and every write that was sent is there"}},
		"status does not know":                                  {[]v1.HandOver{{Epoch: 4, Loss: "not known until orders-1 is back"}}, 0, 0, []string{`status does not say what epoch 4 lost: "not known until orders-1 is back"`}},
		"its words say another thing":                           {[]v1.HandOver{{Epoch: 4, LostBytes: bytes(0), Loss: "5 commits"}}, 0, 0, []string{`status says that epoch 4 lost 0 bytes, and in words "5 commits"`}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Loss(row.told, row.lost, row.undone)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
