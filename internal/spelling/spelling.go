// Package spelling finds the word that was probably meant by one that does not exist:
// a key of a configuration, the name of a tool.
//
// The package is a pure leaf.
package spelling

import "strings"

// maxSlips is how many letters may be wrong.
const maxSlips = 2

// longest is the length in bytes from which on a word is nobody's slip.
const longest = 100

// Nearest returns the word of words that was probably meant by word, the first of
// the nearest; "" where none is near. Upper case, underscores, hyphens and blanks
// make no difference. A slip is a letter that is wrong, missing or too many, or two
// that are swapped; there are at most two of them, and more letters that are right.
func Nearest(word string, words []string) string {
	best, least := "", maxSlips+1
	if len(word) > longest {
		return ""
	}
	word = plain(word)
	for _, w := range words {
		p := plain(w)
		if d := distance(word, p); d < least && 2*d < len(p) {
			best, least = w, d
		}
	}
	return best
}

func plain(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
}

// distance is the number of letters to change, add, drop or swap to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
