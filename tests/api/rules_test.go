package api

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// row is one attempt to write a Database.
type row struct {
	// rule that a bad row breaks: the path of its schema and its number there. Empty for what the schema refuses without CEL.
	rule string
	// name of the Database; a fresh one by default.
	name string
	// before is what is stored first; nil creates with change.
	before []edit
	status map[string]any
	change []edit
	// want is in the answer; empty if it is taken.
	want string
}

func stored(edits ...edit) []edit { return append([]edit{}, edits...) }

func rows() map[string]row {
	started := map[string]any{"epoch": int64(3), "version": "15.6"}
	ran := map[string]any{"epoch": int64(1), "version": "15.4"}
	wal := func(size string) edit { return set("spec.storage.wal.size", size) }
	long := strings.Repeat("a", 41)
	return map[string]row{
		"a name of 40 characters is taken":              {name: strings.Repeat("a", 40)},
		"a longer name is refused":                      {name: long, rule: ".[0]", want: "the name " + long + " must have at most 40 characters"},
		"a name with a dot is refused":                  {name: "shop.orders", rule: ".[0]", want: "the name shop.orders must have"},
		"a name that begins with a digit is refused":    {name: "1orders", rule: ".[0]", want: "begin with a letter"},
		"an unknown engine is refused":                  {change: []edit{set("spec.engine", "oracle")}, want: `spec.engine: Unsupported value: "oracle": supported values: "postgres"`},
		"a missing engine is refused":                   {change: []edit{set("spec.engine", nil)}, want: "spec.engine: Required value"},
		"a missing version is refused":                  {change: []edit{set("spec.version", nil)}, want: "spec.version: Required value"},
		"a missing size is refused":                     {change: []edit{set("spec.storage", map[string]any{})}, want: "spec.storage.size: Required value"},
		"the engine's own part is taken with it":        {change: []edit{set("spec.postgres.hba", []any{"host all all all reject"})}},
		"a line of pg_hba with a line break is refused": {change: []edit{set("spec.postgres.hba", []any{"host all all all trust\nhost"})}, want: "spec.postgres.hba[0]: Invalid value"},

		"a version of one number is taken":         {change: []edit{set("spec.version", "17")}},
		"a version with a word is refused":         {change: []edit{set("spec.version", "17-alpine")}, want: `spec.version: Invalid value: "17-alpine"`},
		"a version with a leading zero is refused": {change: []edit{set("spec.version", "015.4")}, want: `spec.version: Invalid value: "015.4"`},
		"a higher minor is taken":                  {before: stored(), change: []edit{set("spec.version", "15.10")}},
		"a minor is added":                         {before: stored(set("spec.version", "15")), change: []edit{set("spec.version", "15.4")}},
		"a lower minor is refused":                 {before: stored(set("spec.version", "15.10")), status: ran, change: []edit{set("spec.version", "15.9")}, rule: ".[3]", want: "the version cannot be lowered from 15.10 to 15.9; name 15.10 or a later one"},
		"a lower patch is refused":                 {before: stored(set("spec.version", "15.4.2")), status: ran, change: []edit{set("spec.version", "15.4.1")}, rule: ".[3]", want: "cannot be lowered from 15.4.2 to 15.4.1"},
		"a dropped minor is refused":               {before: stored(), status: ran, change: []edit{set("spec.version", "15")}, rule: ".[3]", want: "cannot be lowered from 15.4 to 15"},
		"another major is refused":                 {before: stored(), status: ran, change: []edit{set("spec.version", "16.1")}, rule: ".[2]", want: "the major number cannot change from 15.4 to 16.1"},
		"a lower major is refused":                 {before: stored(), status: ran, change: []edit{set("spec.version", "9.6")}, rule: ".[2]", want: "the major number cannot change from 15.4 to 9.6"},
		"what never ran may be any version":        {before: stored(), change: []edit{set("spec.version", "16.1")}},
		"what never ran may be a lower version":    {before: stored(), status: map[string]any{"phase": "Creating", "epoch": int64(0)}, change: []edit{set("spec.version", "14")}},
		"what is led may have data of its version": {before: stored(), status: map[string]any{"epoch": int64(1)}, change: []edit{set("spec.version", "16")}, rule: ".[2]", want: "the major number cannot change from 15.4 to 16"},
		"what ran once keeps its version":          {before: stored(), status: map[string]any{"version": "15.4"}, change: []edit{set("spec.version", "16")}, rule: ".[2]", want: "the major number cannot change from 15.4 to 16"},
		"a version is put back to what runs":       {before: stored(set("spec.version", "16")), status: started, change: []edit{set("spec.version", "15.6")}},
		"a minor below the running one is refused": {before: stored(set("spec.version", "15")), status: started, change: []edit{set("spec.version", "15.5")}, rule: ".[1]", want: "cannot be set to 15.5 while 15.6 runs"},
		"the running minor is taken":               {before: stored(set("spec.version", "15")), status: started, change: []edit{set("spec.version", "15.6")}},

		"replicas up to the highest are taken":   {change: []edit{set("spec.replicas", int64(5)), set("spec.maxReplicas", int64(5))}},
		"more replicas than allowed are refused": {change: []edit{set("spec.replicas", int64(7)), set("spec.maxReplicas", int64(5))}, rule: ".spec[0]", want: "spec.replicas: Invalid value: more than maxReplicas, which is 5; lower replicas or raise maxReplicas"},
		"a maximum below the default is refused": {change: []edit{set("spec.maxReplicas", int64(2))}, rule: ".spec[0]", want: "more than maxReplicas, which is 2"},
		"no replicas at all are refused":         {change: []edit{set("spec.replicas", int64(0))}, want: "spec.replicas: Invalid value: 0"},
		"sixteen replicas are refused":           {change: []edit{set("spec.maxReplicas", int64(16))}, want: "spec.maxReplicas: Invalid value: 16"},

		"a volume grows":                          {before: stored(wal("1Gi")), change: []edit{set("spec.storage.size", "1.5Gi"), wal("2Gi")}},
		"the same size in other words is taken":   {before: stored(), change: []edit{set("spec.storage.size", "1024Mi")}},
		"a size as a number of bytes is taken":    {change: []edit{set("spec.storage.size", int64(1073741824))}},
		"a volume does not shrink":                {before: stored(set("spec.storage.size", "10Gi")), change: []edit{set("spec.storage.size", "10G")}, rule: ".spec.storage.size[1]", want: "a volume cannot shrink from 10Gi to 10G; keep 10Gi or more"},
		"the log's volume does not shrink":        {before: stored(wal("2Gi")), change: []edit{wal("1Gi")}, rule: ".spec.storage.wal.size[1]", want: "a volume cannot shrink from 2Gi to 1Gi"},
		"a size of nothing is refused":            {change: []edit{set("spec.storage.size", "0")}, rule: ".spec.storage.size[0]", want: `spec.storage.size: Invalid value: "0": must be a size above zero, as 10Gi`},
		"a size below nothing is refused":         {change: []edit{set("spec.storage.size", "-1Gi")}, rule: ".spec.storage.size[0]", want: "must be a size above zero"},
		"a log volume of nothing is refused":      {change: []edit{wal("0")}, rule: ".spec.storage.wal.size[0]", want: "must be a size above zero"},
		"a size that is none is refused":          {change: []edit{set("spec.storage.size", "big")}, want: `spec.storage.size: Invalid value: "big"`},
		"a log volume is not added later":         {before: stored(), change: []edit{wal("1Gi")}, rule: ".spec.storage[1]", want: "a volume for the write-ahead log can be chosen only on creation"},
		"a log volume is not taken away":          {before: stored(wal("1Gi")), change: []edit{set("spec.storage.wal", nil)}, rule: ".spec.storage[1]", want: "a volume for the write-ahead log can be chosen only on creation"},
		"the storage class does not change":       {before: stored(set("spec.storage.class", "fast")), change: []edit{set("spec.storage.class", "slow")}, rule: ".spec.storage[0]", want: "the storage class cannot change"},
		"the storage class does not go":           {before: stored(set("spec.storage.class", "fast")), change: []edit{set("spec.storage.class", nil)}, rule: ".spec.storage[0]", want: "the storage class cannot change"},
		"the storage class does not come":         {before: stored(), change: []edit{set("spec.storage.class", "fast")}, rule: ".spec.storage[0]", want: "the storage class cannot change"},
		"the log's storage class does not change": {before: stored(wal("1Gi")), change: []edit{set("spec.storage.wal.class", "fast")}, rule: ".spec.storage.wal[0]", want: "the storage class cannot change"},
		"growth up to a larger size is taken":     {change: []edit{set("spec.storage.growth.maxSize", "4Gi")}},
		"growth below the size is refused":        {change: []edit{set("spec.storage.growth.maxSize", "512Mi")}, rule: ".spec.storage[2]", want: "growth.maxSize 512Mi is below size 1Gi; raise it"},
		"growth up to nothing is refused":         {change: []edit{set("spec.storage.growth.maxSize", "0")}, rule: ".spec.storage.growth.maxSize[0]", want: "must be a size above zero"},

		"a parameter is taken":                     {change: []edit{set("spec.parameters", map[string]any{"work_mem": "4MB", "auto_explain.log_analyze": "on", "search_path": `"$user", public`})}},
		"a parameter in capitals is refused":       {change: []edit{set("spec.parameters", map[string]any{"Work_Mem": "4MB"})}, rule: ".spec.parameters[0]", want: "the name of a parameter is at most 63 lower-case letters"},
		"a parameter with a blank is refused":      {change: []edit{set("spec.parameters", map[string]any{"work mem": "4MB"})}, rule: ".spec.parameters[0]", want: "the name of a parameter is at most 63 lower-case letters"},
		"a parameter with a long name is refused":  {change: []edit{set("spec.parameters", map[string]any{strings.Repeat("a", 64): "1"})}, rule: ".spec.parameters[0]", want: "the name of a parameter is at most 63 lower-case letters"},
		"a parameter over two lines is refused":    {change: []edit{set("spec.parameters", map[string]any{"work_mem": "4MB\nport = 1"})}, want: "spec.parameters.work_mem: Invalid value"},
		"a parameter with a long value is refused": {change: []edit{set("spec.parameters", map[string]any{"work_mem": strings.Repeat("4", 1025)})}, want: "spec.parameters.work_mem: Too long: may not be more than 1024"},
		"a parameter that is no string is refused": {change: []edit{set("spec.parameters", map[string]any{"max_connections": int64(100)})}, want: "spec.parameters.max_connections: Invalid value"},

		"a certificate from a Secret is taken":     {change: []edit{set("spec.tls.serverSecret", "mine")}},
		"a certificate from an issuer is taken":    {change: []edit{set("spec.tls.issuerRef.name", "corp")}},
		"certificates from two places are refused": {change: []edit{set("spec.tls.serverSecret", "mine"), set("spec.tls.issuerRef.name", "corp")}, rule: ".spec.tls[0]", want: "set at most one of serverSecret and issuerRef"},
		"SQL from a ConfigMap is taken":            {change: []edit{set("spec.bootstrap.sql", []any{map[string]any{"configMapKeyRef": map[string]any{"name": "a", "key": "b.sql"}}})}},
		"SQL from nowhere is refused":              {change: []edit{set("spec.bootstrap.sql", []any{map[string]any{}})}, rule: ".spec.bootstrap.sql.items[0]", want: "set exactly one of configMapKeyRef and secretKeyRef"},
		"a database's name in capitals is refused": {change: []edit{set("spec.bootstrap.database", "Shop")}, want: `spec.bootstrap.database: Invalid value: "Shop"`},
		"bootstrap changes before the first start": {before: stored(), change: []edit{set("spec.bootstrap.database", "shop")}},
		"bootstrap does not change after it":       {before: stored(), status: started, change: []edit{set("spec.bootstrap.database", "shop")}, rule: ".[4]", want: "spec.bootstrap: Invalid value: bootstrap was read when the first instance started"},
		"runAsUser changes before the first start": {before: stored(), change: []edit{set("spec.runAsUser", int64(70))}},
		"runAsUser does not change after it":       {before: stored(), status: started, change: []edit{set("spec.runAsUser", int64(70))}, rule: ".[5]", want: "spec.runAsUser: Invalid value: runAsUser cannot change any more"},
		"root is refused":                          {change: []edit{set("spec.runAsUser", int64(0))}, want: "spec.runAsUser: Invalid value: 0"},
		"a pull secret without a name is refused":  {change: []edit{set("spec.imagePullSecrets", []any{map[string]any{"name": ""}})}, rule: ".spec.imagePullSecrets.items[0]", want: "spec.imagePullSecrets[0].name: Invalid value: name a Secret"},
		"an image with a blank is refused":         {change: []edit{set("spec.image", "postgres:17 --evil")}, want: "spec.image: Invalid value"},
		"a region that is no label is refused":     {change: []edit{set("spec.region", "eu north")}, want: `spec.region: Invalid value: "eu north"`},
		"a fence of an own instance is taken":      {name: "fenced", change: []edit{set("spec.maintenance.fenced", []any{"fenced-1"})}},
		"a fence of everything is taken":           {change: []edit{set("spec.maintenance.fenced", []any{"*"})}},
		"a fence of another's instance is refused": {change: []edit{set("spec.maintenance.fenced", []any{"other-1"})}, rule: ".[6]", want: "spec.maintenance.fenced: Invalid value: an instance is named after its Database"},
	}
}

// needsAnotherEngine are rules that no row can break while there is one engine, and why the schema still has them.
func needsAnotherEngine() []string {
	return []string{".spec.engine[0]", ".spec[1]"}
}

// TestSchemaRules writes each row at each version: a request is checked by the schema of the version that it came in.
func TestSchemaRules(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		ns := namespace(t, nil)
		for sentence, r := range rows() {
			t.Run(version+"/"+sentence, func(t *testing.T) { r.run(t, version, ns) })
		}
	}
}

func (r row) run(t *testing.T, version, ns string) {
	name := r.name
	if name == "" {
		name = fresh()
	}
	d := document(version, ns, name, r.before...)
	write := func() error { return shared.client.Create(t.Context(), d) }
	if r.before != nil {
		if err := write(); err != nil {
			t.Fatalf("store the Database before the change: %v", err)
		}
		if r.status != nil {
			d.Object["status"] = r.status
			if err := shared.client.Status().Update(t.Context(), d); err != nil {
				t.Fatalf("store its status: %v", err)
			}
		}
		write = func() error { return shared.client.Update(t.Context(), d) }
	}
	for _, e := range r.change {
		e(d.Object)
	}
	err := write()
	switch {
	case r.want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case r.want != "" && err == nil:
		t.Errorf("taken: %v", d.Object["spec"])
	case r.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), r.want)):
		t.Errorf("got %v\nwant %s", err, r.want)
	}
}

// TestEveryRuleHasABadRow fails for a rule that no row breaks.
func TestEveryRuleHasABadRow(t *testing.T) {
	crd, err := readCRD()
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string]bool{}
	for _, r := range rows() {
		broken[r.rule] = true
	}
	for _, version := range crd.Spec.Versions {
		all := map[string]string{}
		collect(all, ".", *version.Schema.OpenAPIV3Schema)
		for _, at := range slices.Sorted(maps.Keys(all)) {
			if !broken[at] && !slices.Contains(needsAnotherEngine(), at) {
				t.Errorf("%s: no row breaks the rule %s: %s", version.Name, at, all[at])
			}
		}
		for at := range broken {
			if at != "" && all[at] == "" {
				t.Errorf("%s: a row breaks the rule %s, which does not exist", version.Name, at)
			}
		}
	}
}

func collect(into map[string]string, at string, schema apiextensionsv1.JSONSchemaProps) {
	for i, rule := range schema.XValidations {
		into[at+"["+string(rune('0'+i))+"]"] = rule.Rule
	}
	for name, property := range schema.Properties {
		collect(into, strings.TrimSuffix(at, ".")+"."+name, property)
	}
	if schema.Items != nil {
		collect(into, at+".items", *schema.Items.Schema)
	}
}
