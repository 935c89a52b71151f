import { EmptyState } from '../ui/states';

export function LabPage() {
	return <EmptyState title="Not built yet" icon="wait"></EmptyState>;
}
