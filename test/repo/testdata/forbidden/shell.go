package fixture

func f() {
	_ = "sh -c"                   // refused
	_ = "exec bash -ec 'x'"       // refused
	_ = []string{"sh", "-c", "x"} // refused
	_ = "/bin/sh"                 // refused
	_ = "/usr/bin/bash"           // refused
	_ = "dash"                    // refused

	_ = "shell"
	_ = "push"
	_ = "bash" // the name of a completion
	_ = "crash -c"
}
