// Package monitoring reads the files in dashboard/prometheus and dashboard/grafana, for tests that
// check them against a registry and a real Prometheus.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v4"
)

// Rule is a recording rule or an alert.
type Rule struct {
	Record      string            `yaml:"record"`
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// Rules reads the rules of rules.yml and alerts.yml in the folder dashboard.
func Rules(dashboard string) ([]Rule, error) {
	var all []Rule
	for _, name := range []string{"rules.yml", "alerts.yml"} {
		var file struct {
			Groups []struct {
				Rules []Rule `yaml:"rules"`
			} `yaml:"groups"`
		}
		if err := Read(filepath.Join(dashboard, "prometheus", name), &file); err != nil {
			return nil, err
		}
		for _, group := range file.Groups {
			all = append(all, group.Rules...)
		}
	}
	return all, nil
}

// Read decodes a YAML file.
func Read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Board is a Grafana dashboard.
type Board struct {
	UID           string  `json:"uid"`
	Title         string  `json:"title"`
	Description   string  `json:"description"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []Panel `json:"panels"`
	Templating    struct {
		List []struct {
			Name, Type, Definition string
		} `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
}

// Panel is one panel of a dashboard; a row has no targets.
type Panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// Boards reads all Grafana dashboards in the folder dashboard.
func Boards(dashboard string) ([]Board, error) {
	paths, err := filepath.Glob(filepath.Join(dashboard, "grafana", "dashboards", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Board
	for _, path := range paths {
		text, err := os.ReadFile(path)
		var board Board
		if err == nil {
			err = json.Unmarshal(text, &board)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, board)
	}
	return all, nil
}
