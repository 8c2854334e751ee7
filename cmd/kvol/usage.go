package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what is wrong with a flag: the library speaks of its own parsers.
func flagError(cmd *cobra.Command, err error) error {
	if twice, ok := errors.AsType[*api.Error](err); ok {
		return twice
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := wrong.GetFlag()
		what := unfit(f, wrong.GetValue())
		switch f.Value.Type() {
		case "int", "count":
			what = "is no whole number"
		}
		if what != "" {
			return api.Errorf(api.ErrUsage, "--%s %q %s", f.Name, wrong.GetValue(), what)
		}
	}
	if none, ok := errors.AsType[*pflag.NotExistError](err); ok && none.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if name := nearest(none.GetSpecifiedName(), names); name != "" {
			return api.Errorf(api.ErrUsage, "%w", err).WithNext("did you mean --%s?", name)
		}
	}
	return api.Errorf(api.ErrUsage, "%w", err)
}

// onceFlag is an option of a command that takes one value: of two the first would be
// forgotten silently.
type onceFlag struct {
	pflag.Value
	name  string
	given bool
}

func (f *onceFlag) Set(value string) error {
	if f.given {
		return api.Errorf(api.ErrUsage, "--%s is given twice, and takes one value here", f.name).WithNext("give one of them")
	}
	f.given = true
	return f.Value.Set(value)
}

// onlyOnce makes the options of a command, and of those below it, take one value where
// they are no lists.
func onlyOnce(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		onlyOnce(c)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			_, list := f.Value.(pflag.SliceValue)
			_, several := f.Value.(*uidFlag)
			if f.Value.Type() == "string" && !list && !several {
				f.Value = &onceFlag{Value: f.Value, name: f.Name}
			}
		})
	}
}

// namesFlag is a list of names in which no comma can be. Nothing else means anything in
// it, as a quote would to the library.
type namesFlag []string

func (n *namesFlag) Set(words string) error {
	*n = append(*n, strings.Split(words, ",")...)
	return nil
}

func (n *namesFlag) Append(word string) error {
	*n = append(*n, word)
	return nil
}

func (n *namesFlag) Replace(words []string) error {
	*n = words
	return nil
}

func (n *namesFlag) GetSlice() []string { return *n }
func (n *namesFlag) String() string     { return strings.Join(*n, ",") }
func (n *namesFlag) Type() string       { return "names" }

// noEmptyFlag refuses an option of a command without a value, as a script gives it whose
// variable is not set: a filter that is none takes everything.
func noEmptyFlag(cmd *cobra.Command, _ []string) (err error) {
	everywhere := cmd.Root().PersistentFlags()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			words := list.GetSlice()
			empty = len(words) == 0 || slices.Contains(words, "") && f.Name != "filename" // of which the command says more
		}
		if empty && (everywhere.Lookup(f.Name) == nil || !configurable(f) && f.Name != "config") {
			err = api.Errorf(api.ErrUsage, "--%s has an empty value", f.Name).WithNext("give it one, or leave it out")
		}
	})
	return err
}
