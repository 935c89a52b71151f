import { EmptyState } from '../ui/states';

export function ProvidersPage() {
	return <EmptyState title="Not built yet" icon="wait"></EmptyState>;
}
