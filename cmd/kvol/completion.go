package main

import (
	"io"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/cobra"
)

const completionLong = `Prints a script that completes kvol's commands, flags and what is on this node in bash,
zsh or fish: volumes, pods, plugins and paths, by their names on disk and in the mount
table. No volume is touched for it, and it never waits long.

The packages of kvol bring these scripts along.`

const completionExample = `  # in this shell
  source <(kvol completion bash)
  # in every bash, with the package bash-completion
  kvol completion bash > /etc/bash_completion.d/kvol
  # in every zsh that calls compinit
  kvol completion zsh > /usr/local/share/zsh/site-functions/_kvol
  # in every fish
  kvol completion fish > /etc/fish/completions/kvol.fish`

// shells are those that kvol has a completion script for, scripts what writes it.
var (
	shells  = strings.Fields("bash zsh fish")
	scripts = []func(*cobra.Command, io.Writer) error{
		func(c *cobra.Command, w io.Writer) error {
			var b strings.Builder
			if err := c.GenBashCompletionV2(&b, true); err != nil {
				return err
			}
			_, err := strings.NewReplacer(ask, askBash+ask).WriteString(w, b.String()+inBash)
			return err
		},
		func(c *cobra.Command, w io.Writer) error {
			var b strings.Builder
			if err := c.GenZshCompletion(&b); err != nil {
				return err
			}
			// Completion has EXTENDED_GLOB on, for which driver^handle is a pattern. A quote
			// that is open is closed. What stands before = is evaluated a second time.
			_, err := strings.NewReplacer("    out=$(eval ${requestComp}", askZsh, "=~ '-.*=' ]]", "=~ '-[[:alnum:]_./:@%+=,^~#-]*=' ]]").
				WriteString(w, b.String())
			return err
		},
		func(c *cobra.Command, w io.Writer) error {
			var b strings.Builder
			if err := c.GenFishCompletion(&b, true); err != nil {
				return err
			}
			// The word comes as it is typed, with the quote that is open; those before it
			// come without theirs, so what fish would run or split is quoted again.
			_, err := strings.NewReplacer(
				"(commandline -ct)", `(commandline -ct | string replace -r -- '(^|=)["\']' '$1')`,
				"set -l args (commandline -opc)\n", `set -l args (for word in (commandline -opc)
        string match -qr -- '[\s()<>;&|"\'\\\\]' $word; and string escape -- $word; or printf '%s\n' $word
    end)
`).WriteString(w, b.String())
			return err
		},
	}
)

// ask is where bash's script evaluates the words of the line, to ask kvol. substitution is a
// pattern of what would run a command: of such a line nothing is asked.
const (
	substitution = `$'[$<>=][(]|\x60|[$][{][^[:alnum:]_]'`
	ask          = `    out=$(eval "${requestComp}" `
	askBash      = `    local runs=` + substitution + ` quoted=$'(^|[ =])(["\'])[^"\'$\x60\\\\]*$'
    if [[ ${requestComp} =~ ${runs} ]]; then
        requestComp='echo :4'
    elif [[ ${args[*]} =~ ${quoted} ]]; then # the quote is open
        requestComp+=${BASH_REMATCH[2]}
    fi
`
	askZsh = `    [[ ${requestComp} =~ ` + substitution + ` ]] && return 1
    out=$(setopt noglob; eval ${requestComp}${compstate[quote]:#$QISUFFIX}`
)

// inBash replaces functions of the library's script and of the package bash-completion.
const inBash = `
# Where the package bash-completion is not loaded these do what is needed of it.
__kvol_init_completion()
{
    local line=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=()
    [[ $line == *[\<\>]* ]] && return 1 # bash would open the file
    read -r -a words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=('')
    cword=$((${#words[@]} - 1))
    cur=${words[cword]}
    prev=${words[cword - 1]-}
}

declare -F _filedir >/dev/null || _filedir()
{
    local file
    compopt -o filenames 2>/dev/null
    while IFS= read -r file; do
        if [[ -d $file || $1 != -d && $file == *.@($1) ]]; then
            COMPREPLY+=("$file")
        fi
    done < <(compgen -f -- "$cur")
}

# kvol offers only what fits, and nothing that has to be quoted: a comma that is quoted
# would not fit any more when the list goes on.
__kvol_handle_standard_completion_case()
{
    local tab=$'\t' longest=0 word
    COMPREPLY=("${completions[@]}")
    if ((${#COMPREPLY[@]} == 1)); then
        COMPREPLY[0]=${COMPREPLY[0]%%"$tab"*}
        return
    fi
    for word in "${COMPREPLY[@]%%"$tab"*}"; do
        ((${#word} > longest)) && longest=${#word}
    done
    __kvol_format_comp_descriptions "$longest"
}
`

func newCompletionCmd() *cobra.Command {
	return &cobra.Command{
		Use:       "completion " + strings.Join(shells, "|"),
		Short:     "Print the completion script of a shell",
		Long:      completionLong + exitCodes(api.ExitOK, api.ExitFailed, api.ExitUsage),
		Example:   completionExample,
		GroupID:   about,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"output", "template", "columns", "sort-by", "no-headers", "null", "quiet"} {
				if cmd.Flags().Changed(name) {
					return api.Errorf(api.ErrUsage, "--%s is about results, and %s prints a script", name, cmd.CommandPath()).WithNext("leave it out")
				}
			}
			if len(args) == 1 && slices.Contains(shells, args[0]) {
				return nil
			}
			return api.Errorf(api.ErrUsage, "%s takes one SHELL: %s", cmd.CommandPath(), strings.Join(shells, ", "))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return writing(scripts[slices.Index(shells, args[0])](cmd.Root(), cmd.OutOrStdout()))
		},
	}
}
