import { useEffect, useState } from 'preact/hooks';
import { get } from '../api';
import { useSettled } from '../hooks';
import { queueNames } from '../live';
import type { Job, TenantPage } from '../types';
import { closeDialog, openDialog } from './dialog';
import { Icon } from './icon';
import { JobLink, TenantLink } from './name';

// Finds tenants by a part of their name, and a job by its id, in all queues. The id of a job with a
// key is "tenant:key".

interface Found { of: string; jobs: Job[]; tenants: { queue: string; tenant: string }[] }

/** Whether a text can be the id of a job, which has a fixed form or begins with the tenant. */
const isID = (text: string): boolean => text.includes(':') || /^[\da-f-]{36}$/i.test(text);

/** Asks every queue. A queue that does not answer, or has no such job, adds nothing. */
async function find(text: string, signal: AbortSignal): Promise<Found> {
	const ask = <T,>(segments: string[], query?: Record<string, string | number>) => get<T>(segments, query, signal).catch(() => null);
	const answers = await Promise.all(queueNames.value.map(async (queue) => ({
		job: isID(text) ? await ask<Job>(['queues', queue, 'jobs', text]) : null,
		page: await ask<TenantPage>(['queues', queue, 'tenants'], { search: text, limit: 5 }),
	})));
	return { of: text, jobs: answers.flatMap(({ job }) => job ?? []), tenants: answers.flatMap(({ page }) => page?.tenants ?? []) };
}

function Search() {
	const [text, setText] = useState(''), [found, setFound] = useState<Found | null>(null);
	const settled = useSettled(text.trim(), 200);
	useEffect(() => {
		if (!settled) return setFound(null);
		const abort = new AbortController();
		find(settled, abort.signal).then((all) => abort.signal.aborted || setFound(all), () => {});
		return () => abort.abort();
	}, [settled]);
	const first = (e: Event) => {
		e.preventDefault();
		(e.currentTarget as HTMLFormElement).querySelector('a')?.click();
	};
	const none = found && found.jobs.length + found.tenants.length === 0;
	return (
		<form class="confirm find" role="search" onSubmit={first} onClick={(e) => (e.target as Element).closest('a') && closeDialog()}>
			<h2 id="dialog-title">Search all queues</h2>
			<label class="field">Tenant, or the id of a job
				<input inputMode="search" value={text} onInput={(e) => setText(e.currentTarget.value)} maxLength={300} autocomplete="off" spellcheck={false} />
			</label>
			<p class="hint">Part of a tenant’s name, a job’s id, or tenant:key for a job with a key.</p>
			<div role="status" class="found">
				{found && !none && (
					<ul>
						{found.jobs.map((j) => <li key={j.queue + j.id}>Job <JobLink queue={j.queue} id={j.id} /> <small>in <bdi>{j.queue}</bdi></small></li>)}
						{found.tenants.map((t) => <li key={t.queue + '\n' + t.tenant}><TenantLink queue={t.queue} tenant={t.tenant} /> <small>in <bdi>{t.queue}</bdi></small></li>)}
					</ul>
				)}
				{none && <p>No tenant and no job match <q><bdi>{found.of}</bdi></q>.</p>}
			</div>
			<div class="buttons"><button type="button" onClick={closeDialog}>Close</button></div>
		</form>
	);
}

const open = () => openDialog(() => <Search />);

/** The button in the header; the key `/` does the same, except while a text is edited. */
export function SearchButton() {
	useEffect(() => {
		const key = (e: KeyboardEvent) => {
			if (e.key !== '/' || e.ctrlKey || e.metaKey || e.altKey || (e.target as Element).closest('input, select, textarea, dialog')) return;
			e.preventDefault();
			open();
		};
		addEventListener('keydown', key);
		return () => removeEventListener('keydown', key);
	}, []);
	return <button type="button" class="icon-button" onClick={open} aria-label="Search" aria-keyshortcuts="/" title="Search ( / )"><Icon name="search" /></button>;
}
