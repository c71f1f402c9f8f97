package cluster

import "fmt"

func (c *Cluster) exists() bool { return false }
func nodeName(i int) string     { return fmt.Sprintf("node%d", i) }
