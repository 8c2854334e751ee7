package alive

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
)

// access is where a kubeconfig's current context leads, and as whom.
type access struct {
	server string
	tls    *tls.Config
	cert   *tls.Certificate
	token  exec.Secret
}

// kubeconfigFile is what is read of a kubeconfig: k8s.io/client-go would double the
// time that kvol takes to start. JSON has bytes as base64, as the "-data" fields are.
type kubeconfigFile struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server        string `json:"server"`
			TLSServerName string `json:"tls-server-name"`
			Insecure      bool   `json:"insecure-skip-tls-verify"`
			CA            string `json:"certificate-authority"`
			CAData        []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string         `json:"name"`
		User kubeconfigUser `json:"user"`
	} `json:"users"`
}

type kubeconfigUser struct {
	Cert         string `json:"client-certificate"`
	CertData     []byte `json:"client-certificate-data"`
	Key          string `json:"client-key"`
	KeyData      []byte `json:"client-key-data"`
	Token        string `json:"token"`
	TokenFile    string `json:"tokenFile"`
	Exec         any    `json:"exec"`
	AuthProvider any    `json:"auth-provider"`
}

// kubeconfig reads one. The file is the operator's: what is wrong with it is said,
// but never what is in it.
func (l *look) kubeconfig(ctx context.Context, path string) (*access, error) {
	bad := func(format string, args ...any) error {
		return api.Errorf(api.ErrInput, "the kubeconfig "+format, args...).At(path)
	}
	file, err := l.files.Read(ctx, path)
	if err != nil {
		return nil, err
	}
	var c kubeconfigFile
	if yaml.Unmarshal(file.Data, &c) != nil {
		return nil, bad("is not YAML, or its fields are not of the right type")
	}
	cluster, user := "", ""
	for _, k := range c.Contexts {
		if k.Name == c.CurrentContext {
			cluster, user = k.Context.Cluster, k.Context.User
		}
	}
	// A file named by hand is looked up as kubectl does: paths are relative to it.
	read := func(inline []byte, name string) ([]byte, error) {
		if len(inline) > 0 || name == "" {
			return inline, nil
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		f, err := l.files.Read(ctx, name)
		return f.Data, err
	}
	var a access
	for _, k := range c.Clusters {
		if k.Name != cluster {
			continue
		}
		ca, err := read(k.Cluster.CAData, k.Cluster.CA)
		if err != nil {
			return nil, err
		}
		a.server = k.Cluster.Server
		a.tls = &tls.Config{ServerName: k.Cluster.TLSServerName, InsecureSkipVerify: k.Cluster.Insecure}
		if len(ca) > 0 {
			a.tls.RootCAs = x509.NewCertPool()
			if !a.tls.RootCAs.AppendCertsFromPEM(ca) {
				return nil, bad("names a certificate authority without a certificate")
			}
		}
	}
	if a.server == "" {
		return nil, bad("names no server in its current context %q", c.CurrentContext)
	}
	for _, k := range c.Users {
		if k.Name == user {
			if err := a.identify(k.User, read); err != nil {
				return nil, bad("cannot be used: %w", err)
			}
		}
	}
	return &a, nil
}

// identify takes what proves who we are.
func (a *access) identify(u kubeconfigUser, read func([]byte, string) ([]byte, error)) error {
	if u.Exec != nil || u.AuthProvider != nil {
		return errors.New("it has a program fetch its credentials, and kvol runs none: name one with a certificate or a token")
	}
	// A token's file wins over the token, as in client-go: it is renewed.
	token, err := read(nil, u.TokenFile)
	if err != nil {
		return err
	}
	a.token = exec.NewSecret([]byte(cmp.Or(string(token), u.Token)))
	cert, errC := read(u.CertData, u.Cert)
	key, errK := read(u.KeyData, u.Key)
	if err := errors.Join(errC, errK); err != nil || len(cert) == 0 {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	a.cert, a.tls.Certificates = &pair, []tls.Certificate{pair}
	return nil
}
