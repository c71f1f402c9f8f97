package plugin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/plimsoll-dev/plimsoll-operator/api/v1"
)

// everyInstance fences all.
const everyInstance = "*"

func newFence(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "fence DATABASE INSTANCE...",
		Short: `Stop the server of instances, keep their pods and volumes; "*" for all`,
		Example: `  # Stop the server of orders-2 and look at its volume
  kubectl plimsoll fence orders orders-2

  # Stop all
  kubectl plimsoll fence orders "*"`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.fence(cmd, args, instance, func(now, named []string) []string { return append(now, named...) })
		},
	}
}

func newUnfence(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "unfence DATABASE INSTANCE...",
		Short: `Let fenced instances start again; "*" for all`,
		Example: `  # Let orders-2 start again
  kubectl plimsoll unfence orders orders-2

  # Let all of them
  kubectl plimsoll unfence orders "*"`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.fence(cmd, args, fencedOrThere, func(now, named []string) []string {
				if slices.Contains(named, everyInstance) {
					return nil
				}
				return slices.DeleteFunc(now, func(n string) bool { return slices.Contains(named, n) })
			})
		},
	}
}

// fencedOrThere refuses a name that is neither fenced nor an instance: a fence outlives its instance.
func fencedOrThere(d *v1.Database, name string) error {
	if slices.Contains(Fenced(d.Annotations[v1.AnnotationFence]), name) {
		return nil
	}
	return instance(d, name)
}

func (s *session) fence(cmd *cobra.Command, args []string, known func(*v1.Database, string) error, change func(now, named []string) []string) error {
	k, err := s.connect()
	if err != nil {
		return err
	}
	d, err := k.database(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	named := args[1:]
	for _, n := range named {
		if n == everyInstance {
			continue
		}
		if err := known(d, n); err != nil {
			return err
		}
	}
	var fenced []string
	err = k.annotate(cmd.Context(), d.Name, v1.AnnotationFence, func(now string) string {
		fenced = change(Fenced(now), slices.Clone(named))
		slices.Sort(fenced)
		fenced = slices.Compact(fenced)
		return strings.Join(fenced, ",")
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Streams.Out, "fenced in %s: %s\n", d.Name, or(strings.Join(fenced, " "), "none"))
	if err != nil || len(d.Spec.Maintenance.Fenced) == 0 {
		return err
	}
	_, err = fmt.Fprintf(s.Streams.Out, "spec.maintenance.fenced fences as well: %s (this command does not change the spec)\n", strings.Join(d.Spec.Maintenance.Fenced, " "))
	return err
}

// Fenced are the instances that the value of the fence annotation lists.
func Fenced(annotation string) []string {
	var names []string
	for _, n := range strings.Split(annotation, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	return names
}
