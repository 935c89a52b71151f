package redistest

// Move is the migration of a slot from one node to another.
type Move struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// Move begins the migration of a slot: its owner answers for the keys that it still has, and
// redirects for the others.
func (c *Cluster) Move(slot int, to *Server) *Move {
	c.t.Helper()
	m := &Move{cluster: c, slot: slot, from: c.Owner(slot), to: to}
	c.ask(to, "cluster", "setslot", slot, "importing", c.ids[m.from])
	c.ask(m.from, "cluster", "setslot", slot, "migrating", c.ids[to])
	return m
}

// Keys moves the keys of the slot on its old node, one at a time.
func (m *Move) Keys() {
	m.cluster.t.Helper()
	for m.Key() {
	}
}

// Key moves one of these keys, and returns false if there is none.
func (m *Move) Key() bool {
	t := m.cluster.t
	t.Helper()
	host, port := m.to.hostPort()
	keys, err := m.from.Client().ClusterGetKeysInSlot(t.Context(), m.slot, 1).Result()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if len(keys) == 0 {
		return false
	}
	m.cluster.ask(m.from, "migrate", host, port, keys[0], 0, 60000)
	return true
}

// End moves the remaining keys and gives the slot to its new node. When it returns, all nodes know
// the new owner.
func (m *Move) End() {
	m.cluster.t.Helper()
	m.Keys()
	// The new owner first, so that the slot always has an owner.
	for _, node := range append([]*Server{m.to, m.from}, m.cluster.living()...) {
		m.cluster.ask(node, "cluster", "setslot", m.slot, "node", m.cluster.ids[m.to])
	}
	m.cluster.agree()
}
