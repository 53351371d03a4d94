package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	// runtimeAPI is the variable with the address of Lambda's Runtime API.
	runtimeAPI = "AWS_LAMBDA_RUNTIME_API"

	initErrorPath    = "/2018-06-01/runtime/init/error"
	initErrorHeader  = "Lambda-Runtime-Function-Error-Type"
	initErrorType    = "Runtime.Unconfigured"
	initErrorTimeout = 2 * time.Second
)

// reportInitError reports to Lambda why the process cannot start, so that a caller sees
// the reason, and not only that the process ended.
func reportInitError(address string, cause error) {
	if address == "" {
		return // not on Lambda
	}
	if err := postInitError(address, cause); err != nil {
		fmt.Fprintln(os.Stderr, "miniserver: cannot report that:", err)
	}
}

func postInitError(address string, cause error) error {
	body, err := json.Marshal(map[string]any{"errorMessage": cause.Error(), "errorType": initErrorType, "stackTrace": []string{}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), initErrorTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+initErrorPath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(initErrorHeader, initErrorType)
	// Never through a proxy that the environment names: the address is the machine's own.
	response, err := (&http.Client{Transport: &http.Transport{}}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10))
	if response.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the Runtime API answered %s", response.Status)
	}
	return nil
}
