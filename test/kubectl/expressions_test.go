package kubectl

import "github.com/kvol/kvol/internal/render"

const (
	jsonpath = render.JSONPath
	asJSON   = render.JSONPathAsJSON
	template = render.GoTemplate
	columns  = render.CustomColumns
	file     = render.CustomColumnsFile
)

// expression is one of kubectl's documentation, with kvol's names for the fields.
type expression struct {
	doc    string // what kvol shows: the documents below
	format render.Format
	text   string
}

// reference are those of the JSONPath reference: its table, then its examples.
var reference = []expression{
	{"mounts", jsonpath, `kind is {.kind}`},
	{"mounts", jsonpath, `{@}`},
	{"mounts", jsonpath, `{.kind}`},
	{"mounts", jsonpath, `{['kind']}`},
	{"inspection", jsonpath, `{.metadata[0].data['name\.type']}`},
	{"version", jsonpath, `{..version}`},
	{"mounts", jsonpath, `{..path}`},
	{"mounts", jsonpath, `{.items[*].path}`},
	{"mounts", jsonpath, `{.items[0].path}`},
	{"operations", jsonpath, `{.items[*]['id', 'steps[0].action']}`},
	{"operations", jsonpath, `{.items[*]['id', 'risks']}`},
	{"mounts", jsonpath, `{.items[?(@.volume=="data")].path}`},
	{"operations", jsonpath, `{range .items[*]}[{.id}, {.steps}] {end}`},
	{"mounts", jsonpath, `{range .items[*]}{.path}{'\t'}{end}`},
	{"mounts", jsonpath, `{.items[0]}`},
	{"mounts", jsonpath, `{.items[-1].path}`},
	{"mounts", jsonpath, `{.items[-2:].path}`},
	{"mounts", jsonpath, `{.items[1:3].path}`},
	{"mounts", jsonpath, `{.items[0:3:2].path}`},
	{"mounts", jsonpath, `{.items[9].path}`},
	{"mounts", jsonpath, `{range .items[*]}{.path}{"\t"}{.mountID}{"\n"}{end}`},
	{"inspection", jsonpath, `{.metadata[0].data.kubernetes\.io/hostname}`},
	{"mounts", jsonpath, `{.items[?(@.path=~/^test$/)].path}`}, // it has no regular expressions
	{"mounts", asJSON, `{.items[*].options}`},
	{"mounts", asJSON, `{.items[0]['path','mountID']}`},
	{"mounts", asJSON, `{.items[?(@.volume=="none")]}`},
	{"mounts", asJSON, `{.items[*].capacityBytes}{.kind}`},
	{"mounts", jsonpath, `{$.kind}`},
	{"mounts", jsonpath, `.items[*].path`},
	{"mounts", jsonpath, `{.items[*].path`},
	{"mounts", jsonpath, `{.items[*}`},
	{"mounts", jsonpath, `{end}`},
	{"mounts", jsonpath, `{.nope}`},
	{"mounts", jsonpath, `{.items[*].nope.nope}`},
	{"empty", jsonpath, `{.items[*].path}`},
	{"empty", jsonpath, `{.items[0].path}`},
	{"empty", jsonpath, `{range .items[*]}{.path}{"\n"}{end}`},
	{"empty", asJSON, `{.items[*]}`},
}

// quick are those of the quick reference, in its order.
var quick = []expression{
	{"inspection", jsonpath, `{.metadata[?(@.state == "ok")].data.ca\.crt}`},
	{"mounts", jsonpath, `{.items[?(.volume == "data")].path}`},
	{"mounts", jsonpath, `{.items[].path}`},
	{"mounts", jsonpath, `{.items[*].options[0]}`},
	{"inspection", template, `{{index (index .metadata 0).data "key-name-with-dashes"}}`},
	{"operations", jsonpath, `{.items[*].steps[?(@.action=="bind")].target}`},
	{"operations", jsonpath, `{.items..steps..target}`},
	{"operations", jsonpath, `{range .items[*]}{@.id}:{range @.steps[*]}{@.action}={@.target};{end}{end}`},
	{"operations", columns, `OPERATION:.id,BIND:.steps[?(@.action=="bind")].target`},
	{"inspection", template, `{{range $k,$v := (index .metadata 1).data}}{{"### "}}{{$k}}{{"\n"}}{{$v|base64decode}}{{"\n\n"}}{{end}}`},
	{"inspection", template, `{{range $k,$v := (index .metadata 0).data}}{{$v|base64decode}}{{end}}`},
	{"operations", jsonpath, `{range .items[*].steps[*]}{.target}{"\n"}{end}`},
	{"mounts", columns, `DATA:.options[*]`},
	{"mounts", columns, `NAME:.volume,OPTIONS:.options[*]`},
	{"operations", columns, `DATA:steps[?(@.action!="bind")].target`},
	{"inspection", columns, `DATA:.specs[*].fields.*`},
}

// pages are those of kubectl get --help and of the pages of tasks and concepts.
var pages = []expression{
	{"version", template, `{{.version}}`},
	{"operations", columns, `STEP:.steps[0].action,TARGET:.steps[0].target`},
	{"mounts", columns, `NAME:.volume,RSRC:.mountID`},
	{"mounts", file, "NAME          RSRC\nvolume mountID\n"},
	{"mounts", file, "NAME          RSRC\n{.volume} {mountID}\nmore\n"},
	{"operations", jsonpath, `{.items[*].steps[*].args}`},
	{"operations", jsonpath, `{.items[*]['risks', 'steps'][*].target}`},
	{"operations", jsonpath, `{range .items[*]}{"\n"}{.id}{":\t"}{range .steps[*]}{.target}{", "}{end}{end}`},
	{"operations", template, `{{range .items}}{{range .steps}}{{.target}} {{end}}{{end}}`},
	{"mounts", template, `{{range .items}}{{.path}}{{"\n"}}{{end}}`},
	{"operations", template, `{{range .items}}{{range .steps}}{{if .shell}}{{.shell}}{{"\n"}}{{end}}{{end}}{{end}}`},
	{"operations", template, `{{(index (index .items 0).steps 0).n}}`},
	{"operations", template, `{{range .items}}{{range .steps}}{{printf "%s:\n%s\n\n" .action .target}}{{end}}{{end}}`},
	{"mounts", jsonpath, `{.items[0].state}`},
	{"mounts", template, `{{len .items}}`},
	{"mounts", template, `{{range.items}}{{.path}}:{{end}}`},
	{"mounts", template, `{{if exists . "items" 0 "path"}}{{index .items 0 "path"}}{{end}}`},
	{"mounts", template, `{{exists . "items" 9}}{{exists . "items" -1}}{{exists . "items" "x"}}{{exists . "kind" 0}}{{exists . "nope" "more"}}{{exists . 1}}{{exists .}}`},
	{"mounts", template, `{{eq (index .items 0).mountID 231}}`},
	{"mounts", template, `{{.nope}}{{.kind}}`},
	{"mounts", template, `{{.nope.more}}`},
	{"mounts", template, `{{range .items}}`},
	{"mounts", template, `{{nope .}}`},
	{"mounts", template, `{{.}}`},
	{"mounts", template, `{{(index .items 0).capacityBytes}} {{printf "%T" (index .items 0).capacityBytes}}`},
	{"mounts", template, `{{html "<a>"}}{{js "'"}}{{urlquery .kind}}`},
	{"mounts", template, `{{(index .items 9).path}}`},
	{"empty", template, `{{range .items}}{{.path}}{{else}}none{{end}}`},
}

// odd are what the tests of kubectl's printers have, and what is odd in kvol's values.
var odd = []expression{
	{"mounts", columns, `FIRST:.options[0]`},
	{"mounts", columns, `NONE:.options[0:0],LAST:.options[-1:],MORE:.options[0:2]`},
	{"mounts", columns, `OUT:.options[7]`},
	{"mounts", columns, `A:.nope,B:nope.nope[0]`},
	{"mounts", columns, `A:.path,B`},
	{"mounts", columns, `A:{.path}x`},
	{"mounts", columns, `A:{path}`},
	{"mounts", columns, `A:`},
	{"mounts", columns, `A:..path`},
	{"mounts", columns, `A:.a[`},
	{"mounts", columns, `PATH:.path,READONLY:.readOnly,SIZE:.capacityBytes,OPTIONS:.options,REASON:.stateReason`},
	{"mounts", columns, `ÄÖÜ:.kind,日本:.volume,END:.stacked`},
	{"mounts", file, "A B\n.path\n"},
	{"mounts", file, "A B\n"},
	{"empty", columns, `PATH:.path,VOLUME:.volume`},
	{"version", columns, `VERSION:.version,GO:.go`},
	{"results", columns, `PLUGIN:.plugin,VOLUME:volume`}, // which there are deeper down too
	{"results", columns, `OP:.op,PATHS:.paths,POD:.paths.podVolumePath`},
	{"results", jsonpath, `{.items[*].paths}`},
	{"mounts", jsonpath, `{.items[?(@.mountID>200)].volume}`},
	{"mounts", jsonpath, `{.items[?(@.mountID<=7)].volume}`},
	{"mounts", jsonpath, `{.items[?(@.readOnly==true)].volume}`},
	{"mounts", jsonpath, `{.items[?(@.stateReason!="")].stateReason}`},
	{"mounts", jsonpath, `{.items[?(@.capacityBytes)].capacityBytes}`},
	{"mounts", jsonpath, `{.items[?(@.path=="/r/it's")].volume}`},
	{"mounts", jsonpath, `{.items[*].capacityBytes} {.items[*].readOnly} {.items[*].options}`},
	{"mounts", jsonpath, `{.items[?(@.kind==1)].path}`},
	{"mounts", jsonpath, `{.items[?(@.nope.more=="x")].path}`},
	{"mounts", jsonpath, `{.kind[?(@.a=="x")]}`},
	{"mounts", jsonpath, `{.nope[?(@.a=="x")]}`},
}
