// Command client-go performs typical operations of Kubernetes programs with the library client-go. Each subcommand
// prints one JSON object with its results.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type client struct {
	config *rest.Config
	set    *kubernetes.Clientset
}

var commands = map[string]func(context.Context, *client, []string) (any, error){
	"get":          get,
	"watch":        watchMany,
	"exec":         execute,
	"port-forward": forward,
}

func main() {
	if len(os.Args) < 3 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: client-go get|watch|exec|port-forward KUBECONFIG [argument…]")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[2])
	if err != nil {
		return err
	}
	// Disables the rate limit of the client, because the tests check the limits of the server.
	config.QPS = -1
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	answer, err := commands[os.Args[1]](ctx, &client{config: config, set: set}, os.Args[3:])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

var errArguments = errors.New("wrong number of arguments")
