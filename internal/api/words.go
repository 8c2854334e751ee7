package api

import (
	"fmt"
	"slices"
)

// Count is a number of things in words: "1 entry", "3 entries". A verb that follows
// belongs to both.
func Count[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Words are names one after the other: "sdb1, sdb2".
func Words[T ~string](names []T) string {
	text := ""
	for i, name := range names {
		if i > 0 {
			text += ", "
		}
		text += string(name)
	}
	return text
}

// Few are the first three of many names, and how many more there are.
func Few(names []string) []string {
	if len(names) <= 3 {
		return names
	}
	return append(slices.Clone(names[:3]), fmt.Sprintf("and %d more", len(names)-3))
}
