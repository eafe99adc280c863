// Check a gateway with the Go SDK, or send and receive messages of every type.
//
//	CONNECTION_STRING=… PREFIX=go- go run . [CHECK ...]
//	… send-types QUEUE
//	… receive-types QUEUE COUNT
package main

import (
	"os"
	"slices"
	"strconv"
)

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 2 && arguments[0] == "send-types":
		sendTypes(arguments[1])
	case len(arguments) == 3 && arguments[0] == "receive-types":
		receiveTypes(arguments[1], get(strconv.Atoi(arguments[2])))
	default:
		var names []string
		for name := range checks {
			if len(arguments) == 0 || slices.Contains(arguments, name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		prefix, given := os.LookupEnv("PREFIX")
		if !given {
			prefix = "go-"
		}
		if !run(names, prefix) {
			os.Exit(1)
		}
	}
}
