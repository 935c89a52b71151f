import { EmptyState } from '../ui/states';

export function JobPage({ queue, id }: { queue: string; id: string }) {
	return <EmptyState title="Not built yet" icon="wait">{id} in {queue}</EmptyState>;
}
