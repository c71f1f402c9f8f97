// Package main is the operator: `plimsoll manager` keeps Databases as their specs ask, `plimsoll probe` measures those of one node.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set by the linker.
var version = "devel"

func main() {
	if err := root().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "plimsoll",
		Short:         "Runs replicated databases on Kubernetes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(managerCommand(), probeCommand(), versionCommand())
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "plimsoll %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
