package v1

import "maps"

// ParameterValue is the value of one parameter: one line of at most 1024 characters.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^[^\r\n\x00]*$`
type ParameterValue = string

// Parameters of a server's configuration by name. It is assignable to and from map[string]string; the alias of its values is there
// for their bounds in the schema.
//
// +kubebuilder:object:generate=false
type Parameters map[string]ParameterValue

// DeepCopyInto writes a copy of p into out. It is written by hand, because controller-gen's copier does not follow the alias.
func (p Parameters) DeepCopyInto(out *Parameters) { *out = maps.Clone(p) }

// DeepCopy is a copy of p.
func (p Parameters) DeepCopy() Parameters { return maps.Clone(p) }
