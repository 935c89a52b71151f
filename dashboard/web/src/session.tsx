import { computed, signal } from '@preact/signals';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError, get, keyWanted, setKey } from './api';
import type { Session } from './types';
import { Problem } from './ui/dialog';

export const session = signal<Session | null>(null);

const may = (scope: string) => session.value !== null && !session.value.read_only && session.value.scopes.includes(scope);

/** Whether this session may make changes. If not, their buttons are hidden. */
export const mayChange = computed(() => may('operate'));

/** Whether this session may make changes that affect other tenants. */
export const isAdmin = computed(() => may('admin'));

/** Whether this session sees whole queues, and not only single tenants or kinds. */
export const seesAll = computed(() => session.value !== null && session.value.tenants === undefined && session.value.kinds === undefined);

/** Whether this session sees all queues, and with them the workers. */
export const seesFleet = computed(() => seesAll.value && session.value!.queues === undefined);

/** Whether this session may make changes that affect all tenants of a queue. */
export const mayChangeAll = computed(() => isAdmin.value && seesAll.value);

export async function readSession(): Promise<void> {
	session.value = await get<Session>(['session']);
	keyWanted.value = false;
}

/** Loads the session, and retries until it succeeds. */
export function useSession(): void {
	const wanted = keyWanted.value;
	useEffect(() => {
		if (wanted || session.value) return;
		let timer = 0;
		const ask = () => readSession().catch((e) => {
			if (!(e instanceof ApiError && e.status === 401)) timer = window.setTimeout(ask, 2000);
		});
		void ask();
		return () => clearTimeout(timer);
	}, [wanted]);
}

/** Forgets the key, and with the page all that it has shown. */
export function signOut(): void {
	setKey('');
	location.reload();
}

/** Asks for the key, which is kept in this tab only, until it is closed. */
export function KeyDialog() {
	const dialog = useRef<HTMLDialogElement>(null), id = useId();
	const [text, setText] = useState(''), [error, setError] = useState<unknown>(null);
	const wanted = keyWanted.value;
	useEffect(() => {
		if (wanted) dialog.current!.showModal();
		else dialog.current!.close();
	}, [wanted]);
	const submit = async (e: Event) => {
		e.preventDefault();
		setError(null);
		setKey(text.trim());
		const before = session.value; // of a key that is not valid any more
		try {
			await readSession();
			if (before) location.reload(); // the page still shows what that key could see
			setText('');
		} catch (e) {
			setError(e instanceof ApiError && e.status === 401 ? new Error('The server does not accept this key.') : e);
		}
	};
	return (
		<dialog ref={dialog} aria-labelledby={id + 't'} onCancel={(e) => e.preventDefault()}>
			<form class="confirm" onSubmit={submit}>
				<h2 id={id + 't'}>API key required</h2>
				<p>This server requires an API key. Ask its operator for one.</p>
				<label class="field" for={id + 'k'}>Key
					<input id={id + 'k'} type="password" value={text} onInput={(e) => setText(e.currentTarget.value)} required autocomplete="off" />
				</label>
				{error != null && <Problem error={error} />}
				<div class="buttons"><button type="submit" class="primary">Open</button></div>
			</form>
		</dialog>
	);
}
