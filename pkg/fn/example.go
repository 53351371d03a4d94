package fn

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// addExamples gives each body that has none an example, made of those of its fields.
func addExamples(content map[string]*huma.MediaType, schemas huma.Registry) error {
	for _, media := range content {
		if media.Example != nil {
			continue
		}
		var err error
		if media.Example, err = exampleOf(media.Schema, schemas); err != nil {
			return err
		}
	}
	return nil
}

// exampleOf returns an example of s: its own, or one made of those of its parts. A
// property that may be left out is in it when it has an example of its own.
func exampleOf(s *huma.Schema, schemas huma.Registry) (any, error) {
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0], nil
	case s.Ref != "":
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		example, err := exampleOf(schemas.SchemaFromRef(s.Ref), schemas)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return example, err
	case s.Const != nil:
		return s.Const, nil
	case len(s.Enum) > 0:
		return s.Enum[0], nil
	case len(s.AnyOf) > 0:
		return exampleOf(s.AnyOf[0], schemas)
	case s.Format == "date-time":
		return "2026-01-08T07:10:00.123456Z", nil
	case s.Format == "uuid":
		return "019b9c68-4a40-7c61-8b0e-2f1d7f3c9a10", nil
	case s.Items != nil:
		item, err := exampleOf(s.Items, schemas)
		return []any{item}, err
	case s.Type == huma.TypeObject:
		object := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			property := s.Properties[name]
			if !slices.Contains(s.Required, name) && len(property.Examples) == 0 {
				continue
			}
			example, err := exampleOf(property, schemas)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			object[name] = example
		}
		return object, nil
	}
	return nil, fmt.Errorf("there is no example; give the field one by its tag")
}
