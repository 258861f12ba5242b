// Package schema holds results to the form that a task gives them: a JSON Schema, the
// output_schema of context.json. It takes the value out of what a model hands over,
// and says what is wrong with it in words that the model can act on.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxReasons bounds how much of what is wrong with a result is told at once.
const maxReasons = 10

// name is the schema's name in errors.
const name = "output_schema"

// Schema is the form that a result must have. It may be used by many goroutines at
// once.
type Schema struct{ compiled *jsonschema.Schema }

// noLoader refuses schemas from elsewhere: a task must not make the daemon fetch
// anything.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s: only references within the schema itself are followed", url)
}

// Compile reads a JSON Schema of any draft. It is nil where raw is empty, and follows
// no references to elsewhere.
func Compile(raw json.RawMessage) (*Schema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(name)
	if err != nil {
		var invalid *jsonschema.SchemaValidationError
		if errors.As(err, &invalid) {
			err = errors.New(plainReasons(invalid.Err))
		}
		return nil, err
	}
	return &Schema{s}, nil
}

// Data returns a result as the JSON that it is, without white space and without a
// code fence around it; why is "", or says on one line what keeps it from satisfying
// the schema. A text that is no JSON may itself be the value.
func (s *Schema) Data(result string) (data json.RawMessage, why string) {
	text := unfence(result)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		quoted, _ := json.Marshal(result) // a string always marshals
		if s.compiled.Validate(result) == nil {
			return quoted, ""
		}
		return nil, "it is not JSON (" + clip(err.Error(), 200) + ")"
	}
	if err := s.compiled.Validate(v); err != nil {
		if s.compiled.Validate(result) == nil {
			quoted, _ := json.Marshal(result)
			return quoted, ""
		}
		return nil, plainReasons(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return nil, "it is not JSON (" + err.Error() + ")"
	}
	return compact.Bytes(), ""
}

// plainReasons are the lines of a validation error that say what is wrong where.
func plainReasons(err error) string {
	var reasons []string
	for line := range strings.Lines(err.Error()) {
		if reason, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			reasons = append(reasons, clip(reason, 300))
		}
	}
	switch n := len(reasons) - maxReasons; {
	case len(reasons) == 0:
		return clip(strings.Join(strings.Fields(err.Error()), " "), 600)
	case n > 0:
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(reasons, "; ")
}

// clip bounds s to about n bytes of whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// unfence takes the code fence off a text that is nothing but one.
func unfence(text string) string {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "```") || !strings.HasSuffix(text, "```") {
		return text
	}
	if _, rest, ok := strings.Cut(text, "\n"); ok {
		return strings.TrimSpace(strings.TrimSuffix(rest, "```"))
	}
	return text
}
