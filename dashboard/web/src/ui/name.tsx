import { href } from '../router';

// Names are untrusted text: isolated from the text around them, whatever their direction, and
// shortened by the style sheet.

export function Name({ children }: { children: string }) {
	return <bdi class="name" title={children.length > 24 ? children : undefined}>{children}</bdi>;
}

export const tenantHref = (queue: string, tenant: string) => href('queues', queue, 'tenants', tenant);
export const jobHref = (queue: string, id: string) => href('queues', queue, 'jobs', id);

export function TenantLink({ queue, tenant }: { queue: string; tenant: string }) {
	return <a class="name" href={tenantHref(queue, tenant)} title={tenant.length > 24 ? tenant : undefined}><bdi>{tenant}</bdi></a>;
}

/** Ids begin with the time, so those on one page differ at the end: the middle is omitted. */
export function JobLink({ queue, id }: { queue: string; id: string }) {
	const letters = [...id];
	const short = letters.length > 22 ? `${letters.slice(0, 8).join('')}…${letters.slice(-11).join('')}` : id;
	return <a class="name mono" href={jobHref(queue, id)} title={id}><bdi>{short}</bdi></a>;
}
