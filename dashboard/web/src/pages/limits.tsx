import { EmptyState } from '../ui/states';

export function LimitsPage({ queue }: { queue: string }) {
	return <EmptyState title="Not built yet" icon="wait">{queue}</EmptyState>;
}
