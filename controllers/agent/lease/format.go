package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// knownFormat numbers what promises and records mean. A field that a reader may ignore, and drop when it writes, keeps the number; one
// that it must not gets the next, and is then refused by every program that does not know it. The number is written from 2 on.
const knownFormat = 1

// decodeFormat reads one JSON object that holds the field must: an object of something else is no empty promise. Fields that this
// program does not know are ignored; a format that it does not know is an error. See docs/decisions/0008.
func decodeFormat(b []byte, must string, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	var fields map[string]json.RawMessage
	if err := d.Decode(&fields); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	if _, ok := fields[must]; !ok {
		return fmt.Errorf("the field %q is missing", must)
	}
	if raw, ok := fields["format"]; ok {
		var format int
		if err := json.Unmarshal(raw, &format); err != nil {
			return fmt.Errorf("format: %w", err)
		}
		if format < 1 || format > knownFormat {
			return fmt.Errorf("a later release wrote it: it is of format %d, and this one knows format %d", format, knownFormat)
		}
	}
	return json.Unmarshal(b, into)
}
