import { EmptyState } from '../ui/states';

export function TenantPage({ queue, tenant }: { queue: string; tenant: string }) {
	return <EmptyState title="Not built yet" icon="wait">{tenant} in {queue}</EmptyState>;
}
