package session

import (
	"encoding/json"
	"strings"

	"github.com/gasupervisor/gasupervisor/internal/jsonscan"
	"github.com/gasupervisor/gasupervisor/internal/llm"
	"github.com/gasupervisor/gasupervisor/internal/round"
)

// A reply is not heard before the session's records are read back. Nearly all of
// them is text: it is read by package jsonscan, and what is left of a record by
// encoding/json. Together they read what encoding/json alone would.

// decode reads a record.
func decode(b []byte, r *record) error {
	if d := (decoder{s: jsonscan.New(b)}); d.record(r) {
		return nil
	}
	*r = record{}
	return json.Unmarshal(b, r)
}

// decoder reads one record.
type decoder struct {
	s *jsonscan.Scanner
	// rest is the record without its texts; then puts these into it.
	rest []byte
	then []func()
}

// record reports whether it could read the record.
func (d *decoder) record(r *record) bool {
	d.object(func(name string) bool {
		switch name {
		case "opened":
			var text string
			var history []llm.Message
			d.within(name, func(name string) bool {
				return d.text(name, "text", &text) || d.messages(name, "history", &history)
			})
			d.after(func() { r.Opened.Text, r.Opened.History = text, history })
		case "message":
			var text string
			d.within(name, func(name string) bool { return d.text(name, "text", &text) })
			d.after(func() { r.Message.Text = text })
		case "began":
			var history []llm.Message
			d.within(name, func(name string) bool { return d.messages(name, "history", &history) })
			d.after(func() { r.Began.History = history })
		case "head":
			var system string
			var tools []llm.ToolSpec
			d.within(name, func(name string) bool { return d.text(name, "system", &system) || d.tools(name, "tools", &tools) })
			d.after(func() { r.Head.System, r.Head.Tools = system, tools })
		case "answer":
			var m llm.Message
			d.within(name, func(name string) bool { return d.message(name, "message", &m) })
			d.after(func() { r.Answer.Message = m })
		case "append":
			var messages []llm.Message
			d.within(name, func(name string) bool { return d.messages(name, "messages", &messages) })
			d.after(func() { r.Append.Messages = messages })
		case "rewrite":
			var messages []llm.Message
			d.within(name, func(name string) bool { return d.messages(name, "messages", &messages) })
			d.after(func() { r.Rewrite.Messages = messages })
		case "snapshot":
			var text string
			var conversation []llm.Message
			var prepared *round.Prepared
			d.within(name, func(name string) bool {
				if name == "prepared" && !d.s.Null() {
					prepared = &round.Prepared{}
					d.within(name, func(name string) bool {
						return d.text(name, "system", &prepared.System) || d.tools(name, "tools", &prepared.Tools)
					})
					return true
				}
				return d.text(name, "round_text", &text) || d.messages(name, "conversation", &conversation)
			})
			d.after(func() {
				r.Snapshot.RoundText, r.Snapshot.Conversation = text, conversation
				if prepared != nil {
					r.Snapshot.Prepared.System, r.Snapshot.Prepared.Tools = prepared.System, prepared.Tools
				}
			})
		default:
			return false
		}
		return true
	})
	if !d.s.Done() || json.Unmarshal(d.rest, r) != nil {
		return false
	}
	for _, put := range d.then {
		put()
	}
	return true
}

func (d *decoder) after(put func()) { d.then = append(d.then, put) }

// object reads an object. Fields that known does not read are left to encoding/json.
func (d *decoder) object(known func(name string) bool) {
	d.rest = append(d.rest, '{')
	d.s.Object(func(name string) {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			d.s.Fail() // encoding/json takes "Text" for "text"
			return
		}
		if known(name) {
			return
		}
		d.name(name)
		d.rest = append(d.rest, d.s.Skip()...)
	})
	d.rest = append(d.rest, '}')
}

// within reads the object that is the value of a field.
func (d *decoder) within(name string, known func(name string) bool) {
	d.name(name)
	d.object(known)
}

// name begins a field of the rest.
func (d *decoder) name(name string) {
	if d.rest[len(d.rest)-1] != '{' {
		d.rest = append(d.rest, ',')
	}
	d.rest = append(llm.AppendString(d.rest, name), ':')
}

func (d *decoder) text(name, want string, into *string) bool {
	if name == want {
		*into = d.s.Text()
	}
	return name == want
}

func (d *decoder) message(name, want string, into *llm.Message) bool {
	if name == want {
		into.Scan(d.s)
	}
	return name == want
}

func (d *decoder) messages(name, want string, into *[]llm.Message) bool {
	if name == want && !d.s.Null() {
		*into = []llm.Message{}
		d.s.Array(func() {
			*into = append(*into, llm.Message{})
			(&(*into)[len(*into)-1]).Scan(d.s)
		})
	}
	return name == want
}

func (d *decoder) tools(name, want string, into *[]llm.ToolSpec) bool {
	if name == want && !d.s.Null() {
		*into = []llm.ToolSpec{}
		d.s.Array(func() {
			var t llm.ToolSpec
			d.s.Object(func(name string) {
				switch name {
				case "name":
					t.Name = d.s.Text()
				case "description":
					t.Description = d.s.Text()
				case "parameters":
					t.Parameters = d.s.Raw()
				default:
					d.s.Fail()
				}
			})
			*into = append(*into, t)
		})
	}
	return name == want
}
