package builtin

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
)

// charset is how the bytes of a text are to be read.
type charset string

const (
	utf8Text  charset = "UTF-8"
	utf8BOM   charset = "UTF-8 with a byte order mark"
	utf16LE   charset = "UTF-16 (little endian)"
	utf16BE   charset = "UTF-16 (big endian)"
	gb18030   charset = "GB18030"
	utf8Bad   charset = "UTF-8 with broken characters"
	notText   charset = "binary"
	sniffSize         = 256 << 10
)

// binaryLook is how many bytes at the beginning have to be free of zeros.
const binaryLook = 8 << 10

// sniff finds out how to read a text from its beginning, or from all of it.
func sniff(b []byte, all bool) charset {
	switch {
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return utf8BOM
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
		return utf16LE
	case bytes.HasPrefix(b, []byte("\xfe\xff")):
		return utf16BE
	case bytes.IndexByte(b[:min(len(b), binaryLook)], 0) >= 0:
		return notText
	}
	if !all {
		// What the end cuts through is judged by what stands before it.
		for i := 1; i <= min(4, len(b)); i++ {
			if b[len(b)-i] < utf8.RuneSelf {
				b = b[:len(b)-i+1]
				break
			}
			if utf8.RuneStart(b[len(b)-i]) {
				b = b[:len(b)-i]
				break
			}
		}
	}
	if utf8.Valid(b) {
		return utf8Text
	}
	whole, broken := 0, 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			broken++
			// The rest of a broken sequence belongs to it.
			for n = 1; i+n < len(b) && !utf8.RuneStart(b[i+n]); n++ {
			}
		case n > 1:
			whole++
		}
		i += n
	}
	if broken > whole && likelyGB(b) {
		return gb18030
	}
	return utf8Bad
}

// likelyGB reports whether all of b makes sense as GB18030 and most characters are
// from its common block, both of whose bytes are high; without the second rule
// Latin-1 letters with their neighbours would pass.
func likelyGB(b []byte) bool {
	common, other := 0, 0
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] < utf8.RuneSelf:
			continue
		case i+1 < len(b) && b[i] >= 0xa1 && b[i+1] >= 0xa1:
			common++
			i++
		case i+1 < len(b):
			other++
			i++
		}
	}
	text, err := simplifiedchinese.GB18030.NewDecoder().Bytes(b)
	if err != nil {
		return false
	}
	// A cut through the last character is no fault of the text.
	text = bytes.TrimSuffix(text, []byte("�"))
	return common > other && !bytes.Contains(text, []byte("�"))
}

// coding returns the decoder and encoder where bytes are not UTF-8 anyway.
func (c charset) coding() encoding.Encoding {
	switch c {
	case utf16LE:
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case utf16BE:
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	case gb18030:
		return simplifiedchinese.GB18030
	}
	return nil
}

// decode returns b as valid UTF-8.
func decode(b []byte) string {
	c := sniff(b, true)
	if e := c.coding(); e != nil {
		if out, err := e.NewDecoder().Bytes(b); err == nil {
			return strings.ToValidUTF8(string(out), "�")
		}
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	return strings.ToValidUTF8(string(b), "�")
}
