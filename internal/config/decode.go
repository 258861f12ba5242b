package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gasupervisor/gasupervisor/internal/spelling"
)

// decoder fills a Config from a parsed document and collects what is wrong.
type decoder struct {
	file    string
	lines   map[string]int
	origins map[string]Origin
	faults  faults
}

// table fills the struct v from a table. v keeps the values of keys that the
// table does not have.
func (d *decoder) table(v reflect.Value, data map[string]any, path string) {
	if path != "" {
		d.origins[path] = Origin{Kind: FromFile, Name: d.file, Line: d.lines[path]}
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		at := join(path, toml.Key{name}.String())
		f, ok := fieldByKey(v.Type(), name)
		if !ok {
			d.fault(at, "unknown key", d.unknownHint(v.Type(), path, name))
			continue
		}
		d.value(v.FieldByIndex(f.Index), data[name], at, f.Tag.Get("eg"))
	}
}

// value sets v from one TOML value, and notes where it came from.
func (d *decoder) value(v reflect.Value, data any, path, eg string) {
	if d.set(v, data, path, eg) {
		d.origins[path] = Origin{Kind: FromFile, Name: d.file, Line: d.lines[path]}
	}
}

// set sets v from one TOML value. It reports false where that is at fault, and for
// tables, whose values have places of their own.
func (d *decoder) set(v reflect.Value, data any, path, eg string) bool {
	switch to := v.Addr().Interface().(type) {
	case *time.Duration:
		return quoted(d, to, data, path, "a duration", eg, parseDuration)
	case *Size:
		if n, ok := data.(int64); ok && n == 0 {
			data = "0B"
		}
		return quoted(d, to, data, path, "a size", eg, parseSize)
	case *Network:
		n, ok := networkOf(data)
		if !ok {
			d.wrongType(path, data, `"off", "all" or a list of "host:port"`, `["api.example.org:443"]`)
			return false
		}
		*to = n
	case *[]LLM:
		d.llms(v, data, path)
		return false
	case **Price:
		m, ok := d.asTable(data, path, eg)
		if ok {
			*to = &Price{}
			d.table(reflect.ValueOf(*to).Elem(), m, path)
		}
		return ok
	case **float64:
		f, ok := number(data)
		if !ok {
			d.wrongType(path, data, "a number", eg)
			return false
		}
		*to = &f
	case *map[string]any:
		m, ok := d.asTable(data, path, eg)
		if ok {
			*to = m
		}
		return ok
	case *map[string]string:
		return d.texts(to, data, path, eg)
	case *[]string:
		return d.list(to, data, path, eg)
	default:
		return d.plain(v, data, path, eg)
	}
	return true
}

// quoted sets what parse makes of a text. what names it for messages.
func quoted[T any](d *decoder, to *T, data any, path, what, eg string, parse func(string) (T, error)) bool {
	s, ok := data.(string)
	if !ok {
		d.wrongType(path, data, what+" in quotes", eg)
		return false
	}
	value, err := parse(s)
	if err != nil {
		d.fault(path, err.Error(), "want "+what+" in quotes, such as "+eg)
		return false
	}
	*to = value
	return true
}

func (d *decoder) asTable(data any, path, eg string) (map[string]any, bool) {
	m, ok := data.(map[string]any)
	if !ok {
		d.wrongType(path, data, "a table", eg)
	}
	return m, ok
}

// texts sets a table of texts. An entry that is none is at fault, and left out.
func (d *decoder) texts(to *map[string]string, data any, path, eg string) bool {
	m, ok := data.(map[string]any)
	if !ok {
		d.wrongType(path, data, "a table of texts", eg)
		return false
	}
	*to = map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s, ok := m[k].(string)
		if !ok {
			d.wrongType(join(path, toml.Key{k}.String()), m[k], "text in quotes", "")
			continue
		}
		(*to)[k] = s
	}
	return true
}

// list sets a list of texts likewise.
func (d *decoder) list(to *[]string, data any, path, eg string) bool {
	items, ok := data.([]any)
	if !ok {
		d.wrongType(path, data, "a list of texts", eg)
		return false
	}
	*to = make([]string, 0, len(items))
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			d.wrongType(index(path, i), item, "text in quotes", "")
			continue
		}
		*to = append(*to, s)
	}
	return true
}

// plain is set for plain kinds.
func (d *decoder) plain(v reflect.Value, data any, path, eg string) bool {
	switch v.Kind() {
	case reflect.Struct:
		m, ok := data.(map[string]any)
		if !ok {
			d.wrongType(path, data, "a table", "["+path+"]")
			return false
		}
		d.table(v, m, path)
		return false
	case reflect.String:
		s, ok := data.(string)
		if !ok {
			d.wrongType(path, data, "text in quotes", eg)
			return false
		}
		v.SetString(s)
	case reflect.Bool:
		b, ok := data.(bool)
		if !ok {
			d.wrongType(path, data, "true or false, without quotes", eg)
			return false
		}
		v.SetBool(b)
	case reflect.Int:
		n, ok := data.(int64)
		if !ok {
			d.wrongType(path, data, "a whole number, without quotes", eg)
			return false
		}
		if n < math.MinInt32 || n > math.MaxInt32 {
			d.fault(path, fmt.Sprintf("%d is out of range", n), "want a whole number such as "+eg)
			return false
		}
		v.SetInt(n)
	case reflect.Float64:
		f, ok := number(data)
		if !ok {
			d.wrongType(path, data, "a number, without quotes", eg)
			return false
		}
		v.SetFloat(f)
	default:
		panic("config: no decoding for the type of " + path)
	}
	return true
}

// llms decodes the entries. Each starts from what does not depend on its model.
func (d *decoder) llms(v reflect.Value, data any, path string) {
	tables, ok := data.([]map[string]any)
	if !ok {
		// An inline array of tables comes as []any.
		list, isList := data.([]any)
		for _, item := range list {
			m, isTable := item.(map[string]any)
			isList = isList && isTable
			tables = append(tables, m)
		}
		if !isList {
			d.wrongType(path, data, "one or more tables", "[[llm]] in double brackets")
			return
		}
	}
	entries := make([]LLM, len(tables))
	for i, m := range tables {
		entries[i] = newLLM()
		d.table(reflect.ValueOf(&entries[i]).Elem(), m, index(path, i))
	}
	v.Set(reflect.ValueOf(entries))
}

// unknownHint says what may have been meant by a key that does not exist.
func (d *decoder) unknownHint(t reflect.Type, path, name string) string {
	// The usual mistakes: a slip of the pen, and a key after the wrong [table].
	if meant := spelling.Nearest(name, keysOf(t)); meant != "" {
		return fmt.Sprintf("did you mean %q?", meant)
	}
	root := reflect.TypeFor[Config]()
	if _, ok := fieldByKey(root, name); ok && path != "" {
		return fmt.Sprintf("%q belongs at the top of the file, before the first [table]", name)
	}
	for _, table := range keysOf(root) {
		f, _ := fieldByKey(root, table)
		ft := f.Type
		brackets := "[" + table + "]"
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem()
			brackets = "[[" + table + "]]"
		}
		if ft.Kind() != reflect.Struct {
			continue
		}
		if _, ok := fieldByKey(ft, name); ok {
			return fmt.Sprintf("%q belongs under %s", name, brackets)
		}
	}
	return "want one of " + strings.Join(keysOf(t), ", ")
}

func (d *decoder) wrongType(path string, data any, want, eg string) {
	hint := "want " + want
	if eg != "" {
		hint += ", such as " + eg
	}
	d.fault(path, "got "+describe(data), hint)
}

func (d *decoder) fault(path, problem, hint string) {
	d.faults = append(d.faults, &Error{File: d.file, Line: d.lines[path], Key: path, Problem: problem, Hint: hint})
}

// describe names a TOML value as its author would.
func describe(data any) string {
	switch v := data.(type) {
	case string:
		return "the text " + strconv.Quote(clip(v, 60))
	case bool, int64, float64:
		return fmt.Sprint(v)
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "an array of tables"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("a %T", data)
}

// clip bounds s to about n bytes of whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// parseDuration reads a duration that is not negative.
func parseDuration(s string) (time.Duration, error) {
	t, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("got %q, which is no duration (units are ms, s, m, h)", clip(s, 60))
	}
	if t < 0 {
		return 0, fmt.Errorf("got %q, which is negative", clip(s, 60))
	}
	return t, nil
}

// parseSize reads a size that is not negative; 0 needs no unit.
func parseSize(s string) (Size, error) {
	text := strings.ToUpper(strings.TrimSpace(s))
	number := strings.TrimRight(text, "BKMGTI ")
	n, err := strconv.ParseFloat(number, 64)
	unit, known := map[string]Size{"": 1, "B": 1, "K": kilobyte, "M": megabyte, "G": gigabyte, "T": terabyte}[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(text[len(number):]), "B"), "I")]
	switch {
	case err != nil || !known || n != 0 && number == text:
		return 0, fmt.Errorf("got %q, which is no size (units are KB, MB, GB, TB)", clip(s, 60))
	case n < 0:
		return 0, fmt.Errorf("got %q, which is negative", clip(s, 60))
	case math.IsNaN(n) || n*float64(unit) >= 1<<60:
		return 0, fmt.Errorf("got %q, which is too much", clip(s, 60))
	}
	return Size(n * float64(unit)), nil
}

func networkOf(data any) (Network, bool) {
	switch v := data.(type) {
	case string:
		switch v {
		case "off", "":
			return Network{}, true
		case "all":
			return Network{All: true}, true
		}
		return Network{}, false
	case []any:
		var n Network
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return Network{}, false
			}
			n.Hosts = append(n.Hosts, s)
		}
		return n, true
	}
	return Network{}, false
}

// number reads a float that was written without a point, too.
func number(data any) (float64, bool) {
	switch v := data.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return 0, false
}

// fieldByKey finds the field that a TOML key fills.
func fieldByKey(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); key != "-" && f.Tag.Get("toml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// keysOf lists the keys of a struct in order.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if k := t.Field(i).Tag.Get("toml"); k != "-" {
			keys = append(keys, k)
		}
	}
	return keys
}
