package api

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// everything is a Database with every field of its spec, as its author would write it: sizes in odd units, too.
func everything(version, ns, name string) map[string]any {
	return document(version, ns, name, func(doc map[string]any) {
		doc["metadata"].(map[string]any)["labels"] = map[string]any{"team": "shop"}
		doc["metadata"].(map[string]any)["annotations"] = map[string]any{"note": "every field"}
		doc["spec"] = map[string]any{
			"engine": "postgres", "version": "15.4", "image": "registry.example/postgres:15.4",
			"imagePullSecrets": []any{map[string]any{"name": "pull"}}, "runAsUser": int64(70),
			"replicas": int64(5), "maxReplicas": int64(7),
			"storage": map[string]any{
				"size": "2048Mi", "class": "fast", "wal": map[string]any{"size": int64(1073741824), "class": "faster"},
				"growth": map[string]any{"whenFullPercent": int64(70), "stepPercent": int64(50), "maxSize": "0.1Ti"},
			},
			"resources":   map[string]any{"requests": map[string]any{"cpu": "0.5", "memory": "1024Mi"}, "limits": map[string]any{"memory": "1024Mi"}},
			"parameters":  map[string]any{"work_mem": "4MB", "datestyle": "ISO, MDY"},
			"postgres":    map[string]any{"hba": []any{"hostssl all all 10.0.0.0/8 scram-sha-256"}},
			"replication": map[string]any{"synchronous": "preferred", "witness": "none"},
			"tls":         map[string]any{"issuerRef": map[string]any{"name": "corp", "kind": "ClusterIssuer"}},
			"bootstrap": map[string]any{
				"database": "shop", "owner": "seller", "credentialsSecret": "seller",
				"sql": []any{
					map[string]any{"configMapKeyRef": map[string]any{"name": "schema", "key": "a.sql"}},
					map[string]any{"secretKeyRef": map[string]any{"name": "secret", "key": "b.sql"}},
				},
			},
			"region": "eu-north",
			"scheduling": map[string]any{
				"spread": "required", "nodeSelector": map[string]any{"disk": "ssd"}, "priorityClassName": "high",
				"tolerations": []any{map[string]any{"key": "db", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": int64(300)}},
				"affinity": map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
					"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{map[string]any{"key": "zone", "operator": "In", "values": []any{"a"}}}}},
				}}},
			},
			"observability":  map[string]any{"statements": map[string]any{"slow": "1500ms", "failed": false, "literals": true}},
			"maintenance":    map[string]any{"paused": true, "hibernated": true, "fenced": []any{name + "-2"}},
			"deletionPolicy": "Delete",
		}
	}).Object
}

// reported is a status with every field.
func reported() map[string]any {
	at := "2026-01-02T15:04:05Z"
	return map[string]any{
		"observedGeneration": int64(1), "phase": "Running", "ready": "5/5", "replicas": int64(5), "readyReplicas": int64(5),
		"selector": "plimsoll.dev/database=x", "version": "15.4", "leader": "x-1", "epoch": int64(7), "voters": []any{"x-1", "x-2"},
		"witness":    map[string]any{"name": "x-w1", "node": "n", "voter": true, "message": "m"},
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "AllReady", "message": "m", "lastTransitionTime": at, "observedGeneration": int64(1)}},
		"instances": []any{map[string]any{
			"name": "x-1", "role": "primary", "state": "running", "ready": true, "voter": true, "node": "n", "zone": "z", "version": "15.4",
			"position": "0/3000000", "lagBytes": int64(0), "restartPending": true, "message": "m", "reason": "StandsStill", "lastPosition": "0/2000000", "memoryKills": int64(1), "outOfMemoryAt": "2026-01-02T03:04:05Z",
		}},
		"certificates": []any{map[string]any{"name": "ca", "notAfter": at}},
		"effective": map[string]any{
			"image": "i", "synchronous": "preferred", "storageSize": "2048Mi", "runAsUser": int64(70), "parameters": map[string]any{"shared_buffers": "256MB"},
		},
		// Ids are their authors' own, so that two kinds may share one.
		"requests": []any{
			map[string]any{"id": "a", "kind": "switchover", "target": "x-2", "state": "Done", "message": "m", "startedAt": at, "finishedAt": at},
			map[string]any{"id": "a", "kind": "restart", "state": "Running"},
		},
		"handOvers": []any{map[string]any{"epoch": int64(7), "from": "x-2", "to": "x-1", "cause": "switchover", "at": at, "durationMillis": int64(12), "why": "its server is gone", "waited": "14.2 s for the API server", "lostBytes": int64(0), "loss": "nothing", "steps": []any{map[string]any{"name": "seen", "afterMillis": int64(0)}, map[string]any{"name": "routed", "afterMillis": int64(12)}}}},
	}
}

// TestEverythingHasEveryField fails when a field is added to the API and not to the documents above. tls.serverSecret is left out:
// it excludes tls.issuerRef.
func TestEverythingHasEveryField(t *testing.T) {
	crd, err := readCRD()
	if err != nil {
		t.Fatal(err)
	}
	doc := everything("v1", "n", "x")
	doc["status"] = reported()
	for _, version := range crd.Spec.Versions {
		root := version.Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			for _, at := range missing(part, root.Properties[part], doc[part]) {
				t.Errorf("%s: no %s", version.Name, at)
			}
		}
	}
}

func missing(at string, schema apiextensionsv1.JSONSchemaProps, value any) []string {
	// Kubernetes' own types are large; that they are carried is shown by one branch of each.
	own := []string{"spec.resources", "spec.scheduling.affinity", "spec.scheduling.tolerations", "spec.tls.serverSecret"}
	if slices.Contains(own, at) {
		return nil
	}
	if list, ok := value.([]any); ok && schema.Items != nil {
		var found []string
		for name, property := range schema.Items.Schema.Properties {
			if !slices.ContainsFunc(list, func(item any) bool {
				one, _ := item.(map[string]any)
				return one[name] != nil && len(missing(at+"."+name, property, one[name])) == 0
			}) {
				found = append(found, at+"[]."+name)
			}
		}
		return found
	}
	if value == nil {
		return []string{at}
	}
	object, _ := value.(map[string]any)
	var found []string
	for name, property := range schema.Properties {
		found = append(found, missing(at+"."+name, property, object[name])...)
	}
	return found
}
