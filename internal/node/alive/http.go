package alive

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kvol/kvol/internal/host/exec"
)

// maxBody is more than the pods of any node: 250 of them are some 5 MB.
const maxBody = 32 << 20

// client asks one server once or twice: no connection is kept, no redirection
// followed, as it would go to another server with what proves who we are.
func client(config *tls.Config, fromEnvironment bool) *http.Client {
	t := &http.Transport{TLSClientConfig: config, DisableKeepAlives: !fromEnvironment}
	if fromEnvironment {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// statusError is an answer that is none.
type statusError struct {
	code    int
	message string // of a Kubernetes Status, where it is one
}

func (e *statusError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("it answers %d %s: %s", e.code, http.StatusText(e.code), e.message), ": ")
}

// get reads a JSON document.
func get(ctx context.Context, c *http.Client, url string, token exec.Secret, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if t := token.Reveal(); len(t) > 0 {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(t)))
	}
	resp, err := c.Do(req)
	if err != nil {
		return err // it names method and URL
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return fmt.Errorf("its answer breaks off: %w", err)
	case len(body) > maxBody:
		return fmt.Errorf("its answer is longer than %d bytes", maxBody)
	case resp.StatusCode != http.StatusOK:
		var status struct{ Message string }
		_ = json.Unmarshal(body, &status) // text, of whoever stands before it
		return &statusError{resp.StatusCode, status.Message}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("its answer is not the JSON that it should be: %w", err)
	}
	return nil
}

// refused says whether a server knows us and will not say, or does not know us.
func refused(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && (e.code == http.StatusUnauthorized || e.code == http.StatusForbidden)
}
