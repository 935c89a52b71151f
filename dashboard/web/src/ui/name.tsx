import { href } from '../router';

// Names are untrusted text: isolated from the text around them, whatever their direction. The
// middle of a long name is hidden, because names of one fleet often differ only at the end.

function shorten(text: string, begin: number, end: number): string {
	const letters = [...text];
	return letters.length > begin + end + 3 ? `${letters.slice(0, begin).join('')}…${letters.slice(-end).join('')}` : text;
}

/** A name of at most 40 letters, for charts. */
export const shortened = (text: string): string => shorten(text, 16, 20);

/** The parts of a long name: the style sheet cuts the first of them. Who copies the name copies all of it. */
function Parts({ of }: { of: string }) {
	const letters = [...of];
	return letters.length <= 24 ? <>{of}</> : <><span class="head">{letters.slice(0, -12).join('')}</span><span>{letters.slice(-12).join('')}</span></>;
}
const title = (name: string) => (name.length > 24 ? name : undefined);

export function Name({ children }: { children: string }) {
	return <bdi class="name" title={title(children)}><Parts of={children} /></bdi>;
}

export const tenantHref = (queue: string, tenant: string) => href('queues', queue, 'tenants', tenant);
export const jobHref = (queue: string, id: string) => href('queues', queue, 'jobs', id);

export function TenantLink({ queue, tenant }: { queue: string; tenant: string }) {
	return <a class="name" href={tenantHref(queue, tenant)} title={title(tenant)}><bdi><Parts of={tenant} /></bdi></a>;
}

export function JobLink({ queue, id }: { queue: string; id: string }) {
	return <a class="name mono" href={jobHref(queue, id)} title={id}><bdi>{shorten(id, 8, 11)}</bdi></a>;
}
