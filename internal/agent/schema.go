package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSchemaReasons bounds how much of what is wrong with a result is told at once.
const maxSchemaReasons = 10

// schemaName is the schema's name in errors.
const schemaName = "output_schema"

// outputSchema is the form that a result must have.
type outputSchema struct{ compiled *jsonschema.Schema }

// noLoader refuses schemas from elsewhere: a task must not make the daemon fetch
// anything.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s: only references within the schema itself are followed", url)
}

// compileSchema reads a JSON Schema of any draft; nil where raw is empty.
func compileSchema(raw json.RawMessage) (*outputSchema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaName, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(schemaName)
	if err != nil {
		var invalid *jsonschema.SchemaValidationError
		if errors.As(err, &invalid) {
			err = errors.New(plainReasons(invalid.Err))
		}
		return nil, err
	}
	return &outputSchema{s}, nil
}

// data returns a result as the JSON that it is, without white space; why says what
// keeps it from satisfying the schema. A text that is no JSON may itself be the value.
func (s *outputSchema) data(result string) (data json.RawMessage, why string) {
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
	if len(reasons) == 0 {
		return clip(oneLine(err.Error()), 600)
	}
	return someOf(reasons, maxSchemaReasons)
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
