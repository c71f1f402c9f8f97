package statement

import "strings"

type kind uint8

const (
	word     kind = iota // a name or keyword
	quoted               // a name in double quotes
	literal              // a number, string or parameter, of which nothing is kept
	operator             // and punctuation
)

// token is one of a text. Its text is empty if it is a literal.
type token struct {
	kind kind
	text string
}

// is says that a token is this operator, or this word in whatever case.
func (t token) is(text string) bool {
	return (t.kind == operator || t.kind == word) && strings.EqualFold(t.text, text)
}

// scan reads the tokens of a text by PostgreSQL's rules. What a text that was cut ends within is taken to its end.
func scan(text string) []token {
	var tokens []token
	for at := 0; at < len(text); {
		rest := text[at:]
		n, t := 1, token{kind: operator}
		switch c := rest[0]; {
		case strings.ContainsRune(" \t\n\r\f\v", rune(c)):
			at++
			continue
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"):
			at += comment(rest)
			continue
		case c == '\'':
			n, t.kind = quotes(rest, false), literal
		case c == '"':
			n, t.kind = quotes(rest, false), quoted
		case c == '$':
			if n = dollar(rest); n > 1 {
				t.kind = literal
			}
		case digit(c):
			n, t.kind = number(rest), literal
		case letter(c):
			if n = name(rest); n == 1 && len(rest) > 1 && rest[1] == '\'' && strings.ContainsRune("eEbBxXnN", rune(c)) {
				n, t.kind = 1+quotes(rest[1:], c|0x20 == 'e'), literal
			} else {
				t.kind = word
			}
		case strings.HasPrefix(rest, "::"), strings.HasPrefix(rest, ":="):
			n = 2
		case signs(c):
			n = symbol(rest)
		}
		if t.kind != literal {
			t.text = rest[:n]
		}
		tokens = append(tokens, t)
		at += n
	}
	return tokens
}

// comment is the size of a comment; one between stars may hold others.
func comment(text string) int {
	if text[0] == '-' {
		if n := strings.IndexAny(text, "\r\n"); n >= 0 {
			return n
		}
		return len(text)
	}
	depth := 0
	for i := 0; i+1 < len(text); {
		switch text[i : i+2] {
		case "/*":
			depth++
			i += 2
		case "*/":
			depth--
			i += 2
		default:
			i++
		}
		if depth == 0 {
			return i
		}
	}
	return len(text)
}

// quotes is the size of what is in quotes. A quote in it is doubled.
func quotes(text string, escapes bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case escapes && text[i] == '\\':
			i++
		case text[i] != text[0]:
		case i+1 < len(text) && text[i+1] == text[0]:
			i++
		default:
			return i + 1
		}
	}
	return len(text)
}

// dollar is the size of a parameter, or of a string in dollar quotes; 1 if the dollar begins neither.
func dollar(text string) int {
	n := 1
	for n < len(text) && digit(text[n]) {
		n++
	}
	if n > 1 {
		return n
	}
	for n < len(text) && (letter(text[n]) || n > 1 && digit(text[n])) {
		n++
	}
	if n == len(text) || text[n] != '$' {
		return 1
	}
	tag := text[:n+1]
	if end := strings.Index(text[len(tag):], tag); end >= 0 {
		return len(tag) + end + len(tag)
	}
	return len(text)
}

// number is the size of a number. Its digits may be parted by underscores, and it may have an exponent.
func number(text string) int {
	if len(text) > 1 && text[0] == '0' && strings.ContainsRune("xXoObB", rune(text[1])) { // 0x1F
		return 1 + name(text[1:])
	}
	return decimal(text)
}

func decimal(text string) int {
	n := 0
	for n < len(text) && (digit(text[n]) || text[n] == '.' || text[n] == '_' && n+1 < len(text) && digit(text[n+1])) {
		n++
	}
	e := n
	if e < len(text) && text[e]|0x20 == 'e' {
		e++
		if e < len(text) && (text[e] == '+' || text[e] == '-') {
			e++
		}
		if e < len(text) && digit(text[e]) {
			return e + decimal(text[e:])
		}
	}
	return n
}

func name(text string) int {
	n := 1
	for n < len(text) && (letter(text[n]) || digit(text[n]) || text[n] == '$') {
		n++
	}
	return n
}

// symbol is the size of an operator: it ends before a comment, and with a sign only if it holds what no operator of standard SQL does.
func symbol(text string) int {
	n := 1
	for n < len(text) && signs(text[n]) && !strings.HasPrefix(text[n:], "--") && !strings.HasPrefix(text[n:], "/*") {
		n++
	}
	for n > 1 && (text[n-1] == '+' || text[n-1] == '-') && !strings.ContainsAny(text[:n], "~!@#%^&|`?") {
		n--
	}
	return n
}

func signs(c byte) bool { return strings.IndexByte("+-*/<>=~!@#%^&|`?", c) >= 0 }

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c >= 0x80 }

func digit(c byte) bool { return c >= '0' && c <= '9' }
