// Package statement writes SQL texts of PostgreSQL in their normal form, in which literals are left out.
package statement

import (
	"hash/fnv"
	"strings"
)

// Form is a statement in its normal form.
type Form struct {
	// ID is the same for statements that differ in literals, parameters, white space, comments, the lengths of lists, or the case of
	// what is not in quotes.
	ID uint64
	// Text is what people read, in the case in which it was written.
	Text string
}

// Forms takes a text of the simple protocol apart into its statements and gives the normal form of each.
func Forms(text string) []Form {
	var forms []Form
	for _, tokens := range split(scan(text)) {
		tokens = rows(lists(values(tokens)))
		forms = append(forms, Form{ID: hash(tokens), Text: write(tokens)})
	}
	return forms
}

// values leaves out what stands for or belongs to a literal: TRUE, FALSE and NULL where they are values, and signs that are no operators.
func values(tokens []token) []token {
	var out []token
	for _, t := range tokens {
		last := token{kind: operator}
		if len(out) > 0 {
			last = out[len(out)-1]
		}
		if (t.is("true") || t.is("false") || t.is("null")) && !last.is("is") && !last.is("not") && !last.is("set") {
			t = token{kind: literal}
		}
		if n := len(out); t.kind == literal && (last.is("-") || last.is("+")) && (n == 1 || !out[n-2].value()) {
			out = out[:n-1]
		}
		out = append(out, t)
	}
	return out
}

// value says that a sign after this token is an operator.
func (t token) value() bool {
	switch t.kind {
	case literal, quoted:
		return true
	case word:
		return !keyword(t.text)
	default:
		return t.is(")") || t.is("]")
	}
}

// keyword says that a word is no value, and is written apart from a parenthesis: those of the grammar that stand before expressions.
func keyword(text string) bool {
	switch strings.ToLower(text) {
	case "all", "and", "any", "array", "as", "between", "by", "case", "check", "default", "distinct", "else", "except", "exists", "filter", "for",
		"from", "having", "ilike", "in", "intersect", "into", "is", "join", "like", "limit", "not", "offset", "on", "or", "over", "primary", "return",
		"returning", "select", "set", "some", "then", "to", "union", "using", "values", "when", "where", "with", "within":
		return true
	}
	return false
}

// lists makes (?, ?, ?) one literal in parentheses.
func lists(tokens []token) []token {
	var out []token
	for i := 0; i < len(tokens); {
		end := list(tokens[i:])
		if end == 0 {
			out = append(out, tokens[i])
			i++
			continue
		}
		out = append(out, tokens[i], tokens[i+1], tokens[i+end-1])
		i += end
	}
	return out
}

// list is how many tokens a list of literals takes; 0 if there is none.
func list(tokens []token) int {
	if len(tokens) < 3 || !tokens[0].is("(") {
		return 0
	}
	for i := 1; i+1 < len(tokens) && tokens[i].kind == literal; i += 2 {
		if tokens[i+1].is(")") {
			return i + 2
		}
		if !tokens[i+1].is(",") {
			return 0
		}
	}
	return 0
}

// rows makes (?), (?), (?) one.
func rows(tokens []token) []token {
	const size = 3 // ( ? )
	var out []token
	for i := 0; i < len(tokens); i++ {
		out = append(out, tokens[i])
		if n := len(out); n < size || list(out[n-size:]) != size {
			continue
		}
		for i+1+size < len(tokens) && tokens[i+1].is(",") && list(tokens[i+2:]) == size {
			i += 1 + size
		}
	}
	return out
}

func hash(tokens []token) uint64 {
	h := fnv.New64a()
	for _, t := range tokens {
		text := t.text
		if t.kind != quoted {
			text = strings.ToLower(text)
		}
		// Each ends with a byte that no text has, so that no two sequences of tokens are one.
		_, _ = h.Write(append([]byte(text), 0))
	}
	return h.Sum64()
}

func write(tokens []token) string {
	var b strings.Builder
	for i, t := range tokens {
		if i > 0 && spaced(tokens[i-1], t) {
			b.WriteByte(' ')
		}
		if t.kind == literal {
			t.text = "?"
		}
		b.WriteString(t.text)
	}
	return b.String()
}

// spaced says that two tokens are written apart.
func spaced(left, right token) bool {
	switch {
	case left.is("("), left.is("["), left.is("."), left.is("::"):
		return false
	case right.is(","), right.is(")"), right.is("]"), right.is("["), right.is("."), right.is("::"), right.is(";"):
		return false
	case right.is("("):
		return left.kind != word || keyword(left.text)
	}
	return true
}
