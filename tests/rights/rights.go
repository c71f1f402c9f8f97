// Package rights reads what RBAC objects allow, as lines that can be reviewed.
package rights

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Right is one verb on one resource that a role gives.
type Right struct {
	// Role as Kind/name.
	Role string
	// Resource as group/resource, "core" standing for the empty group; or a path that is no resource.
	Resource string
	// Names that it is limited to, comma-separated; empty for all.
	Names string
	Verb  string
}

// Of are the rights that rules of a role give, one for each verb.
func Of(role string, rules []rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, Right{Role: role, Resource: path, Verb: verb})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					all = append(all, Right{
						Role: role, Resource: cmp.Or(group, "core") + "/" + resource,
						Names: strings.Join(slices.Sorted(slices.Values(rule.ResourceNames)), ","), Verb: verb,
					})
				}
			}
		}
	}
	return all
}

// Text is the reviewed list: a line for each resource of each role, sorted.
func Text(rights []Right) string {
	verbs := map[Right][]string{}
	for _, r := range rights {
		verb := r.Verb
		r.Verb = ""
		if !slices.Contains(verbs[r], verb) {
			verbs[r] = append(verbs[r], verb)
		}
	}
	var lines []string
	for r, list := range verbs {
		slices.Sort(list)
		names := cmp.Or(r.Names, "(all)")
		lines = append(lines, fmt.Sprintf("%s %s %s %s\n", r.Role, r.Resource, names, strings.Join(list, ",")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Parse reads a reviewed list. Lines that begin with # are for readers.
func Parse(text string) ([]Right, error) {
	var rights []Right
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 4 {
			return nil, fmt.Errorf("line %d of the reviewed rights: want role, resource, names and verbs, have %q", n+1, line)
		}
		names := fields[2]
		if names == "(all)" {
			names = ""
		}
		for _, verb := range strings.Split(fields[3], ",") {
			rights = append(rights, Right{Role: fields[0], Resource: fields[1], Names: names, Verb: verb})
		}
	}
	return rights, nil
}

// Missing are the rights of have that want does not list.
func Missing(have, want []Right) []Right {
	var missing []Right
	for _, r := range have {
		if !slices.Contains(want, r) && !slices.Contains(missing, r) {
			missing = append(missing, r)
		}
	}
	return missing
}

// Forbidden says which rights nobody may review: the reason for each, or nothing.
func Forbidden(r Right) string {
	_, resource, _ := strings.Cut(r.Resource, "/")
	switch {
	case strings.Contains(r.Resource, "*") || r.Verb == "*":
		return "a wildcard grows by itself"
	case slices.Contains([]string{"escalate", "bind", "impersonate"}, r.Verb):
		return r.Verb + " is a way to any right"
	case resource == "secrets" && slices.Contains([]string{"list", "watch", "deletecollection"}, r.Verb):
		return "Secrets are read by name"
	case resource == "configmaps" && slices.Contains([]string{"list", "watch", "deletecollection"}, r.Verb):
		return "ConfigMaps are read by name"
	case slices.Contains([]string{"pods/exec", "pods/attach", "pods/ephemeralcontainers", "nodes/proxy", "serviceaccounts/token"}, resource):
		return resource + " is a way into every pod"
	case resource == "customresourcedefinitions" && r.Names == "" && !slices.Contains([]string{"get", "list", "watch"}, r.Verb):
		return "the one CRD has a name"
	case strings.HasSuffix(resource, "webhookconfigurations") && r.Names == "" && !slices.Contains([]string{"get", "list", "watch"}, r.Verb):
		return "the webhook configurations have names"
	default:
		return ""
	}
}

// Covers says whether holder has the right, so that the API server lets it hand the right on.
func Covers(holder []Right, r Right) bool {
	return slices.ContainsFunc(holder, func(h Right) bool {
		return h.Resource == r.Resource && h.Verb == r.Verb && (h.Names == "" || h.Names == r.Names)
	})
}
