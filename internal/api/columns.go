package api

// Column is one of the columns of a command's table.
type Column struct {
	// Name is what --columns and --sort-by call it.
	Name    string `json:"name"`
	Heading string `json:"heading"`
	// WideOnly columns are in -o table only where they are asked for.
	WideOnly bool `json:"wideOnly"`
}
