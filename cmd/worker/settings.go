package main

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
)

// setting is one field of config, as its tags describe it: the environment,
// the flags, the help and "worker config" all come from the same line.
type setting struct {
	env, flag, help string
	secret          bool
	value           reflect.Value
	field           reflect.StructField
}

func settings(c *config) []setting {
	value := reflect.ValueOf(c).Elem()
	var all []setting
	for i := range value.NumField() {
		field := value.Type().Field(i)
		all = append(all, setting{
			env: field.Tag.Get("env"), flag: field.Tag.Get("flag"), help: field.Tag.Get("help"),
			secret: field.Tag.Get("secret") != "", value: value.Field(i), field: field,
		})
	}
	return all
}

// variable is the environment's name of a field of config.
func variable(fieldName string) string {
	if field, ok := reflect.TypeFor[config]().FieldByName(fieldName); ok {
		return prefix + field.Tag.Get("env")
	}
	return fieldName
}

// shown is the value for people: secrets are only said to be there.
func (s setting) shown() string {
	if s.secret {
		if s.value.String() == "" {
			return ""
		}
		return "(set)"
	}
	if list, ok := s.value.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	text := fmt.Sprint(s.value.Interface())
	if s.env == "REDIS_URL" {
		return redactURL(text)
	}
	return text
}

// redactURL leaves the password out of a URL; several hosts make it one that
// package url does not parse, so it looks for the credentials itself.
func redactURL(text string) string {
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

// addFlags gives a command a flag for each setting that may stand on a command
// line; secrets may not, where everybody on the machine could read them.
func addFlags(cmd *cobra.Command) {
	var c config
	for _, s := range settings(&c) {
		if s.flag == "" {
			continue
		}
		usage := fmt.Sprintf("%s [$%s%s]", s.help, prefix, s.env)
		if s.value.Kind() == reflect.Bool {
			cmd.Flags().Bool(s.flag, false, usage)
			continue
		}
		cmd.Flags().String(s.flag, "", usage)
		if preset := s.field.Tag.Get("envDefault"); preset != "" {
			cmd.Flags().Lookup(s.flag).Usage += fmt.Sprintf(" (default %s)", preset)
		}
	}
}

// setFlags puts the flags that were given over the environment's values, read
// by the same rules.
func setFlags(cmd *cobra.Command, c *config) error {
	for _, s := range settings(c) {
		flag := cmd.Flags().Lookup(s.flag)
		if s.flag == "" || flag == nil || !flag.Changed {
			continue
		}
		var parsed config
		err := env.ParseWithOptions(&parsed, env.Options{Environment: map[string]string{s.env: flag.Value.String()}})
		if err != nil {
			return usageError{fmt.Errorf("--%s: %q is not a valid %s", s.flag, flag.Value.String(), s.field.Type)}
		}
		s.value.Set(reflect.ValueOf(parsed).FieldByIndex(s.field.Index))
	}
	return nil
}
