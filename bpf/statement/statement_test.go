package statement

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func forms(text string) []string {
	var texts []string
	for _, f := range Forms(text) {
		texts = append(texts, f.Text)
	}
	return texts
}

func TestATextIsTakenApartAsTheServerDoes(t *testing.T) {
	for sentence, row := range map[string]struct {
		text string
		want []string
	}{
		"one statement":                         {"SELECT a", []string{"SELECT a"}},
		"a semicolon at the end begins nothing": {"SELECT a;", []string{"SELECT a"}},
		"empty statements are none":             {"SELECT a;; SELECT b ;", []string{"SELECT a", "SELECT b"}},
		"a semicolon in a string":               {"SELECT ';'; SELECT b", []string{"SELECT ?", "SELECT b"}},
		"a doubled quote":                       {"SELECT 'it''s;'; SELECT b", []string{"SELECT ?", "SELECT b"}},
		"an escaped quote":                      {`SELECT E'\';'; SELECT b`, []string{"SELECT ?", "SELECT b"}},
		"a backslash is no escape elsewhere":    {`SELECT '\'; SELECT b`, []string{"SELECT ?", "SELECT b"}},
		"a word that ends in e is no prefix":    {`SELECT name'\'; SELECT b`, []string{"SELECT name ?", "SELECT b"}},
		"a semicolon in a quoted name":          {`SELECT "a;""b"; SELECT b`, []string{`SELECT "a;""b"`, "SELECT b"}},
		"dollar quotes":                         {"DO $$ a; b $$; SELECT b", []string{"DO ?", "SELECT b"}},
		"dollar quotes with a tag":              {"DO $x$ a; $$ b $x$; SELECT b", []string{"DO ?", "SELECT b"}},
		"parameters are no dollar quotes":       {"SELECT $1; SELECT $1", []string{"SELECT ?", "SELECT ?"}},
		"dollars in a name":                     {"SELECT a$b$; SELECT b", []string{"SELECT a$b$", "SELECT b"}},
		"comments go":                           {"SELECT a -- x; y\n; /* c; /* d */ e; */ SELECT b", []string{"SELECT a", "SELECT b"}},
		"a comment parts words":                 {"SELECT/**/a", []string{"SELECT a"}},
		"rules have statements in parentheses":  {"CREATE RULE r AS ON INSERT TO t DO (SELECT a; SELECT b); SELECT c", []string{"CREATE RULE r AS ON INSERT TO t DO(SELECT a; SELECT b)", "SELECT c"}},
		"functions of standard SQL": {
			"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN a THEN 1 END; SELECT b; END; SELECT c",
			[]string{"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN a THEN ? END; SELECT b; END", "SELECT c"},
		},
		"BEGIN outside of functions":      {"BEGIN; UPDATE t SET a = 1; END; SELECT b", []string{"BEGIN", "UPDATE t SET a = ?", "END", "SELECT b"}},
		"a string that does not end":      {"SELECT a; SELECT 'a; b", []string{"SELECT a", "SELECT ?"}},
		"a comment that does not end":     {"SELECT a; SELECT b /* a; b", []string{"SELECT a", "SELECT b"}},
		"nothing":                         {" ; -- nothing", nil},
		"a parenthesis that does not end": {"SELECT (; SELECT b", []string{"SELECT (; SELECT b"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(row.want, forms(row.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheNormalForm(t *testing.T) {
	for sentence, row := range map[string]struct{ text, want string }{
		"numbers":                         {"SELECT a FROM t WHERE b = 5 AND c > 1.5e-3", "SELECT a FROM t WHERE b = ? AND c > ?"},
		"numbers of every kind":           {"SELECT 0789, 1_000, 0x1F, 0b1, 1e5, 5.", "SELECT ?, ?, ?, ?, ?, ?"},
		"strings":                         {"SELECT 'a', 'it''s'", "SELECT ?, ?"},
		"strings with prefixes":           {`SELECT E'a\'b', B'01', x'ff', N'n'`, "SELECT ?, ?, ?, ?"},
		"a name before a string":          {"SELECT interval '1 day', e 'x'", "SELECT interval ?, e ?"},
		"dollar quotes":                   {"SELECT $$secret$$, $a$secret$a$", "SELECT ?, ?"},
		"parameters are as literals":      {"SELECT a FROM t WHERE b = $1", "SELECT a FROM t WHERE b = ?"},
		"casts":                           {"SELECT '1'::int, $1::text", "SELECT ?::int, ?::text"},
		"lists":                           {"SELECT a FROM t WHERE b IN (1, 2,3)", "SELECT a FROM t WHERE b IN (?)"},
		"lists of parameters":             {"SELECT a FROM t WHERE b IN ($1,$2)", "SELECT a FROM t WHERE b IN (?)"},
		"lists with names stay":           {"SELECT f(1, a, 2)", "SELECT f(?, a, ?)"},
		"rows":                            {"INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO t VALUES (?)"},
		"letters behind an exponent":      {"SELECT 0E0x1F, 1.50x1F", "SELECT ? x1F, ? x1F"},
		"a negative number":               {"SELECT -1 FROM t WHERE b = -1 AND c IN (-1, - 2) AND - 5 < d", "SELECT ? FROM t WHERE b = ? AND c IN (?) AND ? < d"},
		"a minus is no sign after a name": {"SELECT a-1, a - 1, (a)-1, 2-1", "SELECT a - ?, a - ?, (a) - ?, ? - ?"},
		"operators beside literals":       {"SELECT a/5, a/*x*/, b=-1, c@>'{}', d?'k', e->>'f', g!=1", "SELECT a / ?, a, b = ?, c @> ?, d ? ?, e ->> ?, g != ?"},
		"a comment after an operator":     {"SELECT 1=/* it's */ 'secret', 1+--c'\n2", "SELECT ? = ?, ? + ?"},
		"quoted names stay":               {`SELECT "5 a", "B"."c" FROM "t"`, `SELECT "5 a", "B"."c" FROM "t"`},
		"names with digits stay":          {"SELECT c1 FROM t2.x3", "SELECT c1 FROM t2.x3"},
		"names in other scripts":          {"SELECT größe FROM 表", "SELECT größe FROM 表"},
		"white space":                     {"SELECT\n\ta ,b\nFROM  t", "SELECT a, b FROM t"},
		"functions":                       {"SELECT count(*), now() FROM t", "SELECT count(*), now() FROM t"},
		"subscripts":                      {"SELECT a[1], a[1:2] FROM t", "SELECT a[?], a[? : ?] FROM t"},
		"a string that does not end":      {"SELECT 'secret", "SELECT ?"},
		"truth":                           {"SELECT true, f(NULL) FROM t WHERE a IS NULL AND b IS NOT TRUE AND c = false", "SELECT ?, f(?) FROM t WHERE a IS NULL AND b IS NOT TRUE AND c = ?"},
		"passwords":                       {"ALTER USER app PASSWORD 'secret'", "ALTER USER app PASSWORD ?"},
		"nothing":                         {"", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(row.want, strings.Join(forms(row.text), "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStatementsThatAreOneShareTheirID(t *testing.T) {
	id := func(text string) uint64 { return Forms(text)[0].ID }
	for sentence, texts := range map[string][]string{
		"literals, parameters, case and space": {"SELECT a FROM t WHERE b = 1", "select A from T where B='x'", "SELECT a\nFROM t WHERE b = $1"},
		"lists":                                {"SELECT a FROM t WHERE b IN (1)", "SELECT a FROM t WHERE b IN (1, 2, 3)"},
		"signs":                                {"SELECT a - 1 FROM t WHERE b = -1", "SELECT a-2 FROM t WHERE b = 2"},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, text := range texts[1:] {
				if id(texts[0]) != id(text) {
					t.Errorf("%q and %q differ", texts[0], text)
				}
			}
		})
	}
	for _, pair := range [][2]string{
		{"SELECT a FROM t", "SELECT b FROM t"}, {`SELECT "a"`, `SELECT "A"`}, {"SELECT a b", "SELECT ab"}, {"SELECT f(1, a)", "SELECT f(a)"}, {"SELECT a ? 1", "SELECT a 1, 1"},
	} {
		if id(pair[0]) == id(pair[1]) {
			t.Errorf("%q and %q are taken for one", pair[0], pair[1])
		}
	}
}

// FuzzNoLiteralIsLeft puts a secret where a literal may stand, behind whatever the fuzzer thinks of that does not end within something.
func FuzzNoLiteralIsLeft(f *testing.F) {
	for _, before := range []string{"SELECT ", "SELECT a=", "/* b */ SELECT --c\n", "SELECT a-", "SELECT 1=/* it's */", "SELECT 'x', $$y$$, ", `SELECT "n", `, "SELECT (", "SELECT a$b", "a;b "} {
		f.Add(before)
	}
	f.Fuzz(func(t *testing.T, before string) {
		tokens := scan(before + "\nzqx")
		if strings.Contains(before, "zqx") || len(tokens) == 0 || tokens[len(tokens)-1] != (token{kind: word, text: "zqx"}) {
			t.Skip("what comes before does not end there, or holds the secret's word itself")
		}
		for _, secret := range []string{" 'zqx'", " 'a''zqx'", ` E'\'zqx'`, " $$zqx$$", " $a$zqx$a$", ` '\' 'zqx'`} {
			for _, form := range forms(before + "\n" + secret) {
				if strings.Contains(form, "zqx") {
					t.Errorf("%q is shown as %q", before+secret, form)
				}
			}
		}
	})
}
