package taskdir

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"
)

// What a text was taken for, as it stands in receipts.
const (
	UTF8         = "utf-8"
	UTF8BOM      = "utf-8-sig"      // with a byte order mark, which is left out of the text
	UTF8Repaired = "utf-8-repaired" // a few bad bytes became U+FFFD
	UTF16LE      = "utf-16-le"      // by its byte order mark
	UTF16BE      = "utf-16-be"
	GB18030      = "gb18030" // guessed
)

var (
	bomUTF8    = []byte{0xEF, 0xBB, 0xBF}
	bomUTF16LE = []byte{0xFF, 0xFE}
	bomUTF16BE = []byte{0xFE, 0xFF}
)

// Decode turns the bytes of a text file into valid UTF-8 and says what they were
// taken for. It never fails: what makes no sense becomes U+FFFD.
func Decode(data []byte) (text, encoding string) {
	switch {
	case bytes.HasPrefix(data, bomUTF16LE):
		return decodeUTF16(data[2:], binary.LittleEndian), UTF16LE
	case bytes.HasPrefix(data, bomUTF16BE):
		return decodeUTF16(data[2:], binary.BigEndian), UTF16BE
	}
	rest, bom := bytes.CutPrefix(data, bomUTF8)
	if utf8.Valid(rest) {
		if bom {
			return string(rest), UTF8BOM
		}
		return string(rest), UTF8
	}
	if !bom && plainlyNotUTF8(rest) {
		if text, ok := decodeGB18030(rest); ok {
			return text, GB18030
		}
	}
	return strings.ToValidUTF8(string(rest), "\uFFFD"), UTF8Repaired
}

// decodeRest decodes what was added to a file that began with head: only the
// beginning carries a byte order mark.
func decodeRest(head, rest []byte) (text, encoding string) {
	for _, bom := range [][]byte{bomUTF16LE, bomUTF16BE} {
		if bytes.HasPrefix(head, bom) && !bytes.HasPrefix(rest, bom) {
			return Decode(append(bytes.Clone(bom), rest...))
		}
	}
	return Decode(rest)
}

func decodeUTF16(data []byte, order binary.ByteOrder) string {
	units := make([]uint16, 0, len(data)/2+1)
	for len(data) >= 2 {
		units = append(units, order.Uint16(data))
		data = data[2:]
	}
	if len(data) == 1 {
		units = append(units, utf8.RuneError)
	}
	// Lone surrogates become U+FFFD here.
	return string(utf16.Decode(units))
}

// plainlyNotUTF8 says whether broken sequences outnumber whole ones: a damaged
// UTF-8 text has a few, a text in another encoding hardly anything else.
func plainlyNotUTF8(data []byte) bool {
	good, bad := 0, 0
	for i := 0; i < len(data); {
		if data[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(data[i:])
		if r != utf8.RuneError || n > 1 {
			good++
			i += n
			continue
		}
		// A sequence that was cut short counts once.
		bad++
		for i++; i < len(data) && !utf8.RuneStart(data[i]); i++ {
		}
	}
	return bad > good
}

// decodeGB18030 answers only where every byte makes sense and most characters
// are from the common block, in which both bytes are high. Without the latter
// many a Latin-1 text would decode, its accented letters with their neighbours.
func decodeGB18030(data []byte) (string, bool) {
	common, other := 0, 0
	for i := 0; i < len(data); {
		b := data[i]
		if b < 0x80 {
			i++
			continue
		}
		if b == 0x80 || b == 0xFF || i+1 >= len(data) {
			return "", false
		}
		switch c := data[i+1]; {
		case c >= 0xA1 && c <= 0xFE && b >= 0xA1:
			common++
			i += 2
		case c >= 0x40 && c != 0x7F && c != 0xFF:
			other++
			i += 2
		case c >= '0' && c <= '9' && i+3 < len(data):
			other++
			i += 4
		default:
			return "", false
		}
	}
	if common <= other {
		return "", false
	}
	text, err := simplifiedchinese.GB18030.NewDecoder().Bytes(data)
	if err != nil || bytes.ContainsRune(text, utf8.RuneError) {
		return "", false
	}
	return string(text), true
}
