import type { GraphQLResolveInfo, GraphQLScalarType, GraphQLScalarTypeConfig } from 'graphql';
import type { Order as OrderModel } from '../orders/order.ts';
import type { OrderEventView as OrderEventModel } from '../orders/queries.ts';
import type { CustomerSummary as CustomerSummaryModel } from '../orders/summary-queries.ts';
import type { RequestContext } from './context.ts';
export type Maybe<T> = T | null;
export type InputMaybe<T> = Maybe<T>;
export type Omit<T, K extends keyof T> = Pick<T, Exclude<keyof T, K>>;
export type RequireFields<T, K extends keyof T> = Omit<T, K> & { [P in K]-?: NonNullable<T[P]> };
/** All built-in and custom scalars, mapped to their actual values */
export type Scalars = {
  ID: { input: string; output: string; }
  String: { input: string; output: string; }
  Boolean: { input: boolean; output: boolean; }
  Int: { input: number; output: number; }
  Float: { input: number; output: number; }
  /** A whole number of cents, up to 2^53 - 1: sums over many orders pass the limit of `Int`. */
  Cents: { input: number; output: number; }
  /** A moment in UTC, as ISO 8601 with milliseconds: `2026-11-29T22:18:46.123Z`. */
  DateTime: { input: Date; output: Date; }
};

export type CancelOrderPayload = {
  readonly __typename?: 'CancelOrderPayload';
  readonly order: Order;
};

/** What a customer's orders add up to. */
export type CustomerSummary = {
  readonly __typename?: 'CustomerSummary';
  readonly cancelledCount: Scalars['Int']['output'];
  readonly cancelledTotalCents: Scalars['Cents']['output'];
  readonly customerId: Scalars['ID']['output'];
  /** Orders placed, whatever became of them. */
  readonly placedCount: Scalars['Int']['output'];
  readonly placedTotalCents: Scalars['Cents']['output'];
  readonly shippedCount: Scalars['Int']['output'];
  readonly shippedTotalCents: Scalars['Cents']['output'];
  /** When an event last changed it. */
  readonly updatedAt: Scalars['DateTime']['output'];
};

/** Several mutations in one request run one after another, each in its own transaction: one that fails undoes none before it. */
export type Mutation = {
  readonly __typename?: 'Mutation';
  /** Cancels an order that was placed and has not been shipped. States `OrderCancelled`. */
  readonly cancelOrder: Maybe<CancelOrderPayload>;
  /** Places an order. States `OrderPlaced`. */
  readonly placeOrder: Maybe<PlaceOrderPayload>;
  /** Ships an order that was placed. States `OrderShipped`. */
  readonly shipOrder: Maybe<ShipOrderPayload>;
};


/** Several mutations in one request run one after another, each in its own transaction: one that fails undoes none before it. */
export type MutationCancelOrderArgs = {
  id: Scalars['ID']['input'];
  reason: Scalars['String']['input'];
};


/** Several mutations in one request run one after another, each in its own transaction: one that fails undoes none before it. */
export type MutationPlaceOrderArgs = {
  input: PlaceOrderInput;
};


/** Several mutations in one request run one after another, each in its own transaction: one that fails undoes none before it. */
export type MutationShipOrderArgs = {
  id: Scalars['ID']['input'];
};

export type Order = {
  readonly __typename?: 'Order';
  /** Null unless it was cancelled. */
  readonly cancelReason: Maybe<Scalars['String']['output']>;
  /** Null unless it was cancelled. */
  readonly cancelledAt: Maybe<Scalars['DateTime']['output']>;
  readonly customerId: Scalars['ID']['output'];
  /** What happened to it, in order, and how far each event has travelled. */
  readonly events: ReadonlyArray<OrderEvent>;
  readonly id: Scalars['ID']['output'];
  readonly items: ReadonlyArray<OrderItem>;
  readonly phase: OrderPhase;
  readonly placedAt: Scalars['DateTime']['output'];
  /** Null unless it was shipped. */
  readonly shippedAt: Maybe<Scalars['DateTime']['output']>;
  readonly totalCents: Scalars['Int']['output'];
  /** Grows by one with each event. */
  readonly version: Scalars['Int']['output'];
};

/** One page of orders. */
export type OrderConnection = {
  readonly __typename?: 'OrderConnection';
  readonly edges: ReadonlyArray<OrderEdge>;
  /** The same orders without their cursors. */
  readonly nodes: ReadonlyArray<Order>;
  readonly pageInfo: PageInfo;
};

export type OrderEdge = {
  readonly __typename?: 'OrderEdge';
  /** Opaque: hand it back as `after`, and read nothing into it. */
  readonly cursor: Scalars['String']['output'];
  readonly node: Order;
};

export type OrderEvent = {
  readonly __typename?: 'OrderEvent';
  /** The event's identity: header `event_id` on the topic. */
  readonly id: Scalars['ID']['output'];
  readonly occurredAt: Scalars['DateTime']['output'];
  /** When it was published; null before, and once the outbox no longer keeps it. */
  readonly publishedAt: Maybe<Scalars['DateTime']['output']>;
  readonly status: OrderEventStatus;
  /** `OrderPlaced`, `OrderShipped` or `OrderCancelled`. */
  readonly type: Scalars['String']['output'];
  /** The order's version after it. */
  readonly version: Scalars['Int']['output'];
};

/** How far an event has travelled. */
export type OrderEventStatus =
  /** Was refused by the broker, or waits behind one that was; it is tried again by itself. */
  | 'HELD'
  /** Was refused to the last attempt, or waits behind one that was; an operator decides. */
  | 'PARKED'
  /** Waits in the outbox for the relay. */
  | 'PENDING'
  /** Is on the topic. */
  | 'PUBLISHED'
  /** Was left out by an operator, on the record. */
  | 'SKIPPED';

export type OrderItem = {
  readonly __typename?: 'OrderItem';
  readonly quantity: Scalars['Int']['output'];
  readonly sku: Scalars['String']['output'];
  readonly unitPriceCents: Scalars['Int']['output'];
};

export type OrderItemInput = {
  /** How many: at least 1. */
  readonly quantity: Scalars['Int']['input'];
  /** What is ordered: 1 to 64 characters. */
  readonly sku: Scalars['String']['input'];
  /** What each costs: at least 0. */
  readonly unitPriceCents: Scalars['Int']['input'];
};

/** Where an order is in its life. */
export type OrderPhase =
  | 'CANCELLED'
  | 'PLACED'
  | 'SHIPPED';

export type PageInfo = {
  readonly __typename?: 'PageInfo';
  readonly endCursor: Maybe<Scalars['String']['output']>;
  readonly hasNextPage: Scalars['Boolean']['output'];
  readonly hasPreviousPage: Scalars['Boolean']['output'];
  readonly startCursor: Maybe<Scalars['String']['output']>;
};

export type PlaceOrderInput = {
  /** Who orders: 1 to 64 characters. */
  readonly customerId: Scalars['ID']['input'];
  /** What is ordered: 1 to 100 items. Their total is at most 2147483647 cents. */
  readonly items: ReadonlyArray<OrderItemInput>;
};

export type PlaceOrderPayload = {
  readonly __typename?: 'PlaceOrderPayload';
  readonly order: Order;
};

export type Query = {
  readonly __typename?: 'Query';
  /**
   * What a customer's orders add up to. Kept by a consumer of the orders' events,
   * so it follows a mutation by some milliseconds; null until the first event of
   * this customer has arrived.
   */
  readonly customerSummary: Maybe<CustomerSummary>;
  /** One order, or null if there is none with this id. */
  readonly order: Maybe<Order>;
  /** All orders, newest first. */
  readonly orders: OrderConnection;
};


export type QueryCustomerSummaryArgs = {
  customerId: Scalars['ID']['input'];
};


export type QueryOrderArgs = {
  id: Scalars['ID']['input'];
};


export type QueryOrdersArgs = {
  after: InputMaybe<Scalars['String']['input']>;
  first?: Scalars['Int']['input'];
};

export type ShipOrderPayload = {
  readonly __typename?: 'ShipOrderPayload';
  readonly order: Order;
};



export type ResolverTypeWrapper<T> = Promise<T> | T;


export type ResolverWithResolve<TResult, TParent, TContext, TArgs> = {
  resolve: ResolverFn<TResult, TParent, TContext, TArgs>;
};
export type Resolver<TResult, TParent = Record<PropertyKey, never>, TContext = Record<PropertyKey, never>, TArgs = Record<PropertyKey, never>> = ResolverFn<TResult, TParent, TContext, TArgs> | ResolverWithResolve<TResult, TParent, TContext, TArgs>;

export type ResolverFn<TResult, TParent, TContext, TArgs> = (
  parent: TParent,
  args: TArgs,
  context: TContext,
  info: GraphQLResolveInfo
) => Promise<TResult> | TResult;

export type SubscriptionSubscribeFn<TResult, TParent, TContext, TArgs> = (
  parent: TParent,
  args: TArgs,
  context: TContext,
  info: GraphQLResolveInfo
) => AsyncIterable<TResult> | Promise<AsyncIterable<TResult>>;

export type SubscriptionResolveFn<TResult, TParent, TContext, TArgs> = (
  parent: TParent,
  args: TArgs,
  context: TContext,
  info: GraphQLResolveInfo
) => TResult | Promise<TResult>;

export interface SubscriptionSubscriberObject<TResult, TKey extends string, TParent, TContext, TArgs> {
  subscribe: SubscriptionSubscribeFn<{ [key in TKey]: TResult }, TParent, TContext, TArgs>;
  resolve?: SubscriptionResolveFn<TResult, { [key in TKey]: TResult }, TContext, TArgs>;
}

export interface SubscriptionResolverObject<TResult, TParent, TContext, TArgs> {
  subscribe: SubscriptionSubscribeFn<any, TParent, TContext, TArgs>;
  resolve: SubscriptionResolveFn<TResult, any, TContext, TArgs>;
}

export type SubscriptionObject<TResult, TKey extends string, TParent, TContext, TArgs> =
  | SubscriptionSubscriberObject<TResult, TKey, TParent, TContext, TArgs>
  | SubscriptionResolverObject<TResult, TParent, TContext, TArgs>;

export type SubscriptionResolver<TResult, TKey extends string, TParent = Record<PropertyKey, never>, TContext = Record<PropertyKey, never>, TArgs = Record<PropertyKey, never>> =
  | ((...args: any[]) => SubscriptionObject<TResult, TKey, TParent, TContext, TArgs>)
  | SubscriptionObject<TResult, TKey, TParent, TContext, TArgs>;

export type TypeResolveFn<TTypes, TParent = Record<PropertyKey, never>, TContext = Record<PropertyKey, never>> = (
  parent: TParent,
  context: TContext,
  info: GraphQLResolveInfo
) => Maybe<TTypes> | Promise<Maybe<TTypes>>;

export type IsTypeOfResolverFn<T = Record<PropertyKey, never>, TContext = Record<PropertyKey, never>> = (obj: T, context: TContext, info: GraphQLResolveInfo) => boolean | Promise<boolean>;

export type NextResolverFn<T> = () => Promise<T>;

export type DirectiveResolverFn<TResult = Record<PropertyKey, never>, TParent = Record<PropertyKey, never>, TContext = Record<PropertyKey, never>, TArgs = Record<PropertyKey, never>> = (
  next: NextResolverFn<TResult>,
  parent: TParent,
  args: TArgs,
  context: TContext,
  info: GraphQLResolveInfo
) => TResult | Promise<TResult>;





/** Mapping between all available schema types and the resolvers types */
export type ResolversTypes = {
  Boolean: ResolverTypeWrapper<Scalars['Boolean']['output']>;
  CancelOrderPayload: ResolverTypeWrapper<Omit<CancelOrderPayload, 'order'> & { order: ResolversTypes['Order'] }>;
  Cents: ResolverTypeWrapper<Scalars['Cents']['output']>;
  CustomerSummary: ResolverTypeWrapper<CustomerSummaryModel>;
  DateTime: ResolverTypeWrapper<Scalars['DateTime']['output']>;
  ID: ResolverTypeWrapper<Scalars['ID']['output']>;
  Int: ResolverTypeWrapper<Scalars['Int']['output']>;
  Mutation: ResolverTypeWrapper<Record<PropertyKey, never>>;
  Order: ResolverTypeWrapper<OrderModel>;
  OrderConnection: ResolverTypeWrapper<Omit<OrderConnection, 'edges' | 'nodes'> & { edges: ReadonlyArray<ResolversTypes['OrderEdge']>, nodes: ReadonlyArray<ResolversTypes['Order']> }>;
  OrderEdge: ResolverTypeWrapper<Omit<OrderEdge, 'node'> & { node: ResolversTypes['Order'] }>;
  OrderEvent: ResolverTypeWrapper<OrderEventModel>;
  OrderEventStatus: OrderEventStatus;
  OrderItem: ResolverTypeWrapper<OrderItem>;
  OrderItemInput: OrderItemInput;
  OrderPhase: OrderPhase;
  PageInfo: ResolverTypeWrapper<PageInfo>;
  PlaceOrderInput: PlaceOrderInput;
  PlaceOrderPayload: ResolverTypeWrapper<Omit<PlaceOrderPayload, 'order'> & { order: ResolversTypes['Order'] }>;
  Query: ResolverTypeWrapper<Record<PropertyKey, never>>;
  ShipOrderPayload: ResolverTypeWrapper<Omit<ShipOrderPayload, 'order'> & { order: ResolversTypes['Order'] }>;
  String: ResolverTypeWrapper<Scalars['String']['output']>;
};

/** Mapping between all available schema types and the resolvers parents */
export type ResolversParentTypes = {
  Boolean: Scalars['Boolean']['output'];
  CancelOrderPayload: Omit<CancelOrderPayload, 'order'> & { order: ResolversParentTypes['Order'] };
  Cents: Scalars['Cents']['output'];
  CustomerSummary: CustomerSummaryModel;
  DateTime: Scalars['DateTime']['output'];
  ID: Scalars['ID']['output'];
  Int: Scalars['Int']['output'];
  Mutation: Record<PropertyKey, never>;
  Order: OrderModel;
  OrderConnection: Omit<OrderConnection, 'edges' | 'nodes'> & { edges: ReadonlyArray<ResolversParentTypes['OrderEdge']>, nodes: ReadonlyArray<ResolversParentTypes['Order']> };
  OrderEdge: Omit<OrderEdge, 'node'> & { node: ResolversParentTypes['Order'] };
  OrderEvent: OrderEventModel;
  OrderItem: OrderItem;
  OrderItemInput: OrderItemInput;
  PageInfo: PageInfo;
  PlaceOrderInput: PlaceOrderInput;
  PlaceOrderPayload: Omit<PlaceOrderPayload, 'order'> & { order: ResolversParentTypes['Order'] };
  Query: Record<PropertyKey, never>;
  ShipOrderPayload: Omit<ShipOrderPayload, 'order'> & { order: ResolversParentTypes['Order'] };
  String: Scalars['String']['output'];
};

export type CancelOrderPayloadResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['CancelOrderPayload'] = ResolversParentTypes['CancelOrderPayload']> = {
  order?: Resolver<ResolversTypes['Order'], ParentType, ContextType>;
};

export interface CentsScalarConfig extends GraphQLScalarTypeConfig<ResolversTypes['Cents'], any> {
  name: 'Cents';
}

export type CustomerSummaryResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['CustomerSummary'] = ResolversParentTypes['CustomerSummary']> = {
  cancelledCount?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
  cancelledTotalCents?: Resolver<ResolversTypes['Cents'], ParentType, ContextType>;
  customerId?: Resolver<ResolversTypes['ID'], ParentType, ContextType>;
  placedCount?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
  placedTotalCents?: Resolver<ResolversTypes['Cents'], ParentType, ContextType>;
  shippedCount?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
  shippedTotalCents?: Resolver<ResolversTypes['Cents'], ParentType, ContextType>;
  updatedAt?: Resolver<ResolversTypes['DateTime'], ParentType, ContextType>;
};

export interface DateTimeScalarConfig extends GraphQLScalarTypeConfig<ResolversTypes['DateTime'], any> {
  name: 'DateTime';
}

export type MutationResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['Mutation'] = ResolversParentTypes['Mutation']> = {
  cancelOrder?: Resolver<Maybe<ResolversTypes['CancelOrderPayload']>, ParentType, ContextType, RequireFields<MutationCancelOrderArgs, 'id' | 'reason'>>;
  placeOrder?: Resolver<Maybe<ResolversTypes['PlaceOrderPayload']>, ParentType, ContextType, RequireFields<MutationPlaceOrderArgs, 'input'>>;
  shipOrder?: Resolver<Maybe<ResolversTypes['ShipOrderPayload']>, ParentType, ContextType, RequireFields<MutationShipOrderArgs, 'id'>>;
};

export type OrderResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['Order'] = ResolversParentTypes['Order']> = {
  cancelReason?: Resolver<Maybe<ResolversTypes['String']>, ParentType, ContextType>;
  cancelledAt?: Resolver<Maybe<ResolversTypes['DateTime']>, ParentType, ContextType>;
  customerId?: Resolver<ResolversTypes['ID'], ParentType, ContextType>;
  events?: Resolver<ReadonlyArray<ResolversTypes['OrderEvent']>, ParentType, ContextType>;
  id?: Resolver<ResolversTypes['ID'], ParentType, ContextType>;
  items?: Resolver<ReadonlyArray<ResolversTypes['OrderItem']>, ParentType, ContextType>;
  phase?: Resolver<ResolversTypes['OrderPhase'], ParentType, ContextType>;
  placedAt?: Resolver<ResolversTypes['DateTime'], ParentType, ContextType>;
  shippedAt?: Resolver<Maybe<ResolversTypes['DateTime']>, ParentType, ContextType>;
  totalCents?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
  version?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
};

export type OrderConnectionResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['OrderConnection'] = ResolversParentTypes['OrderConnection']> = {
  edges?: Resolver<ReadonlyArray<ResolversTypes['OrderEdge']>, ParentType, ContextType>;
  nodes?: Resolver<ReadonlyArray<ResolversTypes['Order']>, ParentType, ContextType>;
  pageInfo?: Resolver<ResolversTypes['PageInfo'], ParentType, ContextType>;
};

export type OrderEdgeResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['OrderEdge'] = ResolversParentTypes['OrderEdge']> = {
  cursor?: Resolver<ResolversTypes['String'], ParentType, ContextType>;
  node?: Resolver<ResolversTypes['Order'], ParentType, ContextType>;
};

export type OrderEventResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['OrderEvent'] = ResolversParentTypes['OrderEvent']> = {
  id?: Resolver<ResolversTypes['ID'], ParentType, ContextType>;
  occurredAt?: Resolver<ResolversTypes['DateTime'], ParentType, ContextType>;
  publishedAt?: Resolver<Maybe<ResolversTypes['DateTime']>, ParentType, ContextType>;
  status?: Resolver<ResolversTypes['OrderEventStatus'], ParentType, ContextType>;
  type?: Resolver<ResolversTypes['String'], ParentType, ContextType>;
  version?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
};

export type OrderItemResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['OrderItem'] = ResolversParentTypes['OrderItem']> = {
  quantity?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
  sku?: Resolver<ResolversTypes['String'], ParentType, ContextType>;
  unitPriceCents?: Resolver<ResolversTypes['Int'], ParentType, ContextType>;
};

export type PageInfoResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['PageInfo'] = ResolversParentTypes['PageInfo']> = {
  endCursor?: Resolver<Maybe<ResolversTypes['String']>, ParentType, ContextType>;
  hasNextPage?: Resolver<ResolversTypes['Boolean'], ParentType, ContextType>;
  hasPreviousPage?: Resolver<ResolversTypes['Boolean'], ParentType, ContextType>;
  startCursor?: Resolver<Maybe<ResolversTypes['String']>, ParentType, ContextType>;
};

export type PlaceOrderPayloadResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['PlaceOrderPayload'] = ResolversParentTypes['PlaceOrderPayload']> = {
  order?: Resolver<ResolversTypes['Order'], ParentType, ContextType>;
};

export type QueryResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['Query'] = ResolversParentTypes['Query']> = {
  customerSummary?: Resolver<Maybe<ResolversTypes['CustomerSummary']>, ParentType, ContextType, RequireFields<QueryCustomerSummaryArgs, 'customerId'>>;
  order?: Resolver<Maybe<ResolversTypes['Order']>, ParentType, ContextType, RequireFields<QueryOrderArgs, 'id'>>;
  orders?: Resolver<ResolversTypes['OrderConnection'], ParentType, ContextType, RequireFields<QueryOrdersArgs, 'first'>>;
};

export type ShipOrderPayloadResolvers<ContextType = RequestContext, ParentType extends ResolversParentTypes['ShipOrderPayload'] = ResolversParentTypes['ShipOrderPayload']> = {
  order?: Resolver<ResolversTypes['Order'], ParentType, ContextType>;
};

export type Resolvers<ContextType = RequestContext> = {
  CancelOrderPayload?: CancelOrderPayloadResolvers<ContextType>;
  Cents?: GraphQLScalarType;
  CustomerSummary?: CustomerSummaryResolvers<ContextType>;
  DateTime?: GraphQLScalarType;
  Mutation?: MutationResolvers<ContextType>;
  Order?: OrderResolvers<ContextType>;
  OrderConnection?: OrderConnectionResolvers<ContextType>;
  OrderEdge?: OrderEdgeResolvers<ContextType>;
  OrderEvent?: OrderEventResolvers<ContextType>;
  OrderItem?: OrderItemResolvers<ContextType>;
  PageInfo?: PageInfoResolvers<ContextType>;
  PlaceOrderPayload?: PlaceOrderPayloadResolvers<ContextType>;
  Query?: QueryResolvers<ContextType>;
  ShipOrderPayload?: ShipOrderPayloadResolvers<ContextType>;
};

