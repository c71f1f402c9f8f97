package redis

import "strings"

// Bounds of pattern.h.
const (
	keyMost  = 128
	wordMost = 32
)

// pattern is a key without what tells one of many from the others: see pattern.h, which makes a hash of the same. Whole is the key's size before it was
// cut.
func pattern(key string, whole int) string {
	var out strings.Builder
	for i := 0; i < len(key); {
		end := i
		for end < len(key) && !isSign(key[end]) {
			end++
		}
		if end == i {
			out.WriteByte(key[i])
			i++
			continue
		}
		out.WriteString(fold(key[i:end]))
		i = end
	}
	if whole > keyMost {
		out.WriteString("…")
	}
	return out.String()
}

// isSign says whether a byte stands between words: what of ASCII can be seen, spaces too, and is no letter and no digit.
func isSign(b byte) bool {
	return b >= ' ' && b < 0x7f && !isLetter(b) && !isDigit(b)
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// fold leaves of a word what of it counts as it stands.
func fold(word string) string {
	letters := 0
	for letters < len(word) && isLetter(word[letters]) {
		letters++
	}
	if letters > wordMost {
		return "*"
	}
	for _, b := range []byte(word[letters:]) {
		if !isDigit(b) {
			return "*"
		}
	}
	if letters < len(word) {
		return word[:letters] + "*"
	}
	return word
}
