package statement

import (
	"slices"
	"strings"
)

// split takes tokens apart into statements, as the server does.
func split(tokens []token) [][]token {
	var statements [][]token
	begin, parens, bodies := 0, 0, 0
	for at, t := range tokens {
		routine := begin < at && makesRoutine(tokens[begin:at])
		switch {
		case t.is("("):
			parens++
		case t.is(")"):
			parens--
		case parens > 0 || t.kind == quoted:
		case t.is(";") && bodies == 0:
			statements = append(statements, tokens[begin:at])
			begin = at + 1
		case routine && (t.is("begin") || t.is("case") && bodies > 0):
			bodies++
		case routine && t.is("end") && bodies > 0:
			bodies--
		}
		if begin > at {
			parens, bodies = 0, 0
		}
	}
	statements = append(statements, tokens[begin:])
	return slices.DeleteFunc(statements, func(s []token) bool { return len(s) == 0 })
}

// makesRoutine says that tokens begin CREATE [OR REPLACE] FUNCTION or PROCEDURE, whose body in standard SQL holds statements.
func makesRoutine(tokens []token) bool {
	if !tokens[0].is("create") {
		return false
	}
	const most = 4
	for _, t := range tokens[1:min(len(tokens), most)] {
		switch strings.ToLower(t.text) {
		case "function", "procedure":
			return t.kind == word
		}
	}
	return false
}
