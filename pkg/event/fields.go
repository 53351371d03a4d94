package event

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fields renders a message as the API shows it: names as in proto, every field
// present, and 64-bit numbers as JSON numbers (protojson would quote them).
func fields(m protoreflect.Message) map[string]any {
	descriptors := m.Descriptor().Fields()
	out := make(map[string]any, descriptors.Len())
	for i := range descriptors.Len() {
		fd := descriptors.Get(i)
		if fd.HasPresence() && !m.Has(fd) {
			continue
		}
		out[string(fd.Name())] = value(fd, m.Get(fd))
	}
	return out
}

func value(fd protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case fd.IsList():
		list := v.List()
		out := make([]any, list.Len())
		for i := range out {
			out[i] = single(fd, list.Get(i))
		}
		return out
	case fd.IsMap():
		out := map[string]any{}
		v.Map().Range(func(key protoreflect.MapKey, item protoreflect.Value) bool {
			out[key.String()] = single(fd.MapValue(), item)
			return true
		})
		return out
	}
	return single(fd, v)
}

func single(fd protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return fields(v.Message())
	case protoreflect.EnumKind:
		if name := fd.Enum().Values().ByNumber(v.Enum()); name != nil {
			return string(name.Name())
		}
		return int32(v.Enum())
	}
	return v.Interface()
}
