package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

func TestFences(t *testing.T) {
	type told struct {
		Fenced   []string
		Wrong    string
		Warnings []string
	}
	long := strings.Repeat("orders-3, ", 102) + "orders-12"
	for sentence, row := range map[string]struct {
		spec       []string
		annotation string
		want       told
	}{
		"nobody":                           {},
		"both places count":                {[]string{"orders-2"}, " orders-1 ,orders-2,", told{Fenced: []string{"orders-1", "orders-2"}}},
		"everything":                       {nil, "*", told{Fenced: []string{"*"}}},
		"an instance that was scaled away": {nil, "orders-7", told{Fenced: []string{"orders-7"}}},
		"a number that there never was": {[]string{"orders-8"}, "orders-9", told{
			Fenced: []string{"orders-8", "orders-9"}, Warnings: []string{"there is no instance orders-8, orders-9 to fence now; if it ever comes, it will run no server"},
		}},
		"a typing error fences nothing, and spoils nothing": {nil, "order-1,orders-2", told{
			Fenced: []string{"orders-2"}, Wrong: `the annotation plimsoll.dev/fence names what is no instance of orders, and fences nothing by it: "order-1"; name one as orders-1, or * for all`,
		}},
		"a list that is not separated by commas": {nil, "orders-1 orders-2", told{
			Wrong: `the annotation plimsoll.dev/fence names what is no instance of orders, and fences nothing by it: "orders-1 orders-2"; name one as orders-1, or * for all`,
		}},
		"many typing errors are told in part": {nil, "a,b,c,d,e,\n" + strings.Repeat("f", 100), told{
			Wrong: `the annotation plimsoll.dev/fence names what is no instance of orders, and fences nothing by it: "a", "b", "c", "d" and 2 more; name one as orders-1, or * for all`,
		}},
		"one that is too long is read as far as whole names go": {nil, long, told{
			Fenced: []string{"orders-3"}, Wrong: "the annotation plimsoll.dev/fence is longer than 1024 bytes, and what comes after is not read; shorten it",
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := orders(func(d *v1.Database) {
				d.Spec.Maintenance.Fenced, d.Annotations = row.spec, map[string]string{v1.AnnotationFence: row.annotation}
				d.Status.Instances = []v1.InstanceStatus{{Name: "orders-7"}}
			})
			got := told{Fenced: Fenced(d), Wrong: WrongFences(d), Warnings: FenceWarnings(nil, d)}
			if row.want.Wrong != "" {
				row.want.Warnings = append([]string{row.want.Wrong}, row.want.Warnings...)
			}
			if len(got.Fenced) == 0 {
				got.Fenced = nil
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := FenceWarnings(d, d); len(again) > 0 {
				t.Errorf("an update that leaves the fences alone is warned of them: %v", again)
			}
		})
	}
}
