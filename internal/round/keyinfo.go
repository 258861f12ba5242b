package round

import "strings"

// supervisorsLine begins each of the supervisor's entries in a session's working
// memory. They come after the agent's own text, which ends at the first of them.
const supervisorsLine = "[supervisor] "

// AddKeyInfo returns the working memory keyInfo with a note of the supervisor
// added. The agent cannot take it out again.
func AddKeyInfo(keyInfo, note string) string {
	note = strings.TrimSpace(note)
	if note == "" {
		return keyInfo
	}
	if keyInfo != "" {
		keyInfo += "\n"
	}
	return keyInfo + supervisorsLine + note
}

// ReplaceKeyInfo returns the working memory keyInfo with the agent's own text
// replaced by text and the supervisor's notes kept.
func ReplaceKeyInfo(keyInfo, text string) string {
	at := strings.Index("\n"+keyInfo, "\n"+supervisorsLine)
	// Agents like to copy what they were shown.
	var own strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, supervisorsLine) {
			own.WriteString(line)
		}
	}
	text = strings.TrimSpace(own.String())
	switch {
	case at < 0:
		return text
	case text == "":
		return keyInfo[at:]
	}
	return text + "\n" + keyInfo[at:]
}
