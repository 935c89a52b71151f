// Package settings reads what our programs are told, by the environment and by
// flags, which win. A setting is one field of a struct, and its tags say the rest:
//
//	HTTPAddr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:9090" flag:"http" help:"…"`
//
// A secret has no flag, for everybody on the machine can read those.
package settings

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
)

// Prefix is that of the environment's names.
const Prefix = "HEADGATE_"

// Setting is one field, as its tags describe it.
type Setting struct {
	Env, Flag, Help string
	Value           reflect.Value

	secret bool
	field  reflect.StructField
	index  []int
}

// Of are the settings of a struct that c points to, and of those embedded in it.
func Of(c any) []Setting { return of(reflect.ValueOf(c).Elem(), nil) }

func of(value reflect.Value, index []int) []Setting {
	var all []Setting
	for i := range value.NumField() {
		field := value.Type().Field(i)
		at := append(index[:len(index):len(index)], i)
		if field.Anonymous {
			all = append(all, of(value.Field(i), at)...)
			continue
		}
		all = append(all, Setting{
			Env: field.Tag.Get("env"), Flag: field.Tag.Get("flag"), Help: field.Tag.Get("help"),
			secret: field.Tag.Get("secret") != "", Value: value.Field(i), field: field, index: at,
		})
	}
	return all
}

// Read reads the environment into the struct that c points to, and then the flags
// that were given.
func Read(cmd *cobra.Command, c any) error {
	if err := ReadEnv(c); err != nil {
		return err
	}
	return readFlags(cmd, c)
}

// ReadEnv reads the environment into the struct that c points to.
func ReadEnv(c any) error {
	if err := env.ParseWithOptions(c, env.Options{Prefix: Prefix}); err != nil {
		return envError(err, c)
	}
	return nil
}

// envError says which variables are wrong, one a line, without their values: a
// secret may stand in the wrong one.
func envError(err error, c any) error {
	all, ok := errors.AsType[env.AggregateError](err)
	if !ok {
		return err
	}
	var lines []string
	for _, err := range all.Errors {
		if parse, ok := errors.AsType[env.ParseError](err); ok {
			lines = append(lines, fmt.Sprintf("%s: not a valid %s", variable(parse.Name, c), parse.Type))
			continue
		}
		lines = append(lines, err.Error())
	}
	return errors.New(strings.Join(lines, "; "))
}

// variable is the environment's name of a field.
func variable(fieldName string, c any) string {
	for _, s := range Of(c) {
		if s.field.Name == fieldName {
			return Prefix + s.Env
		}
	}
	return fieldName
}

// Shown is the value for people: secrets are only said to be there.
func (s Setting) Shown() string {
	if s.secret {
		if s.Value.String() == "" {
			return ""
		}
		return "(set)"
	}
	if list, ok := s.Value.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	text := fmt.Sprint(s.Value.Interface())
	if s.Env == "REDIS_URL" {
		return RedactURL(text)
	}
	return text
}

// RedactURL leaves the password out of a URL; several hosts make it one that
// package url does not parse, so it looks for the credentials itself.
func RedactURL(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return "(unusable)"
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return text
	}
	user, _, _ := strings.Cut(rest[:at], ":")
	return scheme + "://" + url.PathEscape(user) + ":(set)@" + rest[at+1:]
}

// AddFlags gives a command a flag for each setting that may stand on a command
// line.
func AddFlags(cmd *cobra.Command, c any) {
	for _, s := range Of(c) {
		if s.Flag == "" {
			continue
		}
		usage := fmt.Sprintf("%s [$%s%s]", s.Help, Prefix, s.Env)
		if s.Value.Kind() == reflect.Bool {
			cmd.Flags().Bool(s.Flag, false, usage)
			continue
		}
		cmd.Flags().String(s.Flag, "", usage)
		if preset := s.field.Tag.Get("envDefault"); preset != "" {
			cmd.Flags().Lookup(s.Flag).Usage += fmt.Sprintf(" (default %s)", preset)
		}
	}
}

// readFlags puts the flags that were given over the environment's values, read by
// the same rules.
func readFlags(cmd *cobra.Command, c any) error {
	for _, s := range Of(c) {
		flag := cmd.Flags().Lookup(s.Flag)
		if s.Flag == "" || flag == nil || !flag.Changed {
			continue
		}
		parsed := reflect.New(reflect.TypeOf(c).Elem())
		err := env.ParseWithOptions(parsed.Interface(), env.Options{Environment: map[string]string{s.Env: flag.Value.String()}})
		if err != nil {
			return fmt.Errorf("--%s: %q is not a valid %s", s.Flag, flag.Value.String(), s.field.Type)
		}
		s.Value.Set(parsed.Elem().FieldByIndex(s.index))
	}
	return nil
}
